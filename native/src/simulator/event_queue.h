/* Events of a simulation, earliest first. Internal. */
#ifndef SDS_EVENT_QUEUE_H
#define SDS_EVENT_QUEUE_H

#include <stddef.h>

#include "sds/status.h"
#include <stdint.h>

typedef struct sds__event {
    int64_t time;
    int32_t kind;
    int32_t of;
} sds__event;

/* A heap of four branches; all zero is empty. */
typedef struct sds__event_queue {
    size_t n;
    size_t room;
    sds__event *event;
} sds__event_queue;

void sds__event_queue_free(sds__event_queue *queue);

/* SDS_ENOMEM. */
sds_status sds__event_push(sds__event_queue *queue, sds__event event);

/* Take the first event: the queue is not empty. */
sds__event sds__event_pop(sds__event_queue *queue);

#endif
