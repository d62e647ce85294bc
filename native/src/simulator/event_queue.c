#include "event_queue.h"

#include <stdlib.h>

#define BRANCHES 4

void sds__event_queue_free(sds__event_queue *queue)
{
    free(queue->event);
}

sds_status sds__event_push(sds__event_queue *queue, sds__event event)
{
    if (queue->n == queue->room) {
        const size_t room = queue->room == 0 ? 64 : queue->room * 2;
        sds__event *more = realloc(queue->event, room * sizeof *more);
        if (more == NULL) return SDS_ENOMEM;
        queue->event = more;
        queue->room = room;
    }
    size_t i = queue->n++;
    while (i > 0) {
        const size_t above = (i - 1) / BRANCHES;
        if (queue->event[above].time <= event.time) break;
        queue->event[i] = queue->event[above];
        i = above;
    }
    queue->event[i] = event;
    return SDS_OK;
}

sds__event sds__event_pop(sds__event_queue *queue)
{
    sds__event *event = queue->event;
    const sds__event first = event[0], last = event[--queue->n];
    const size_t n = queue->n;
    size_t i = 0;
    for (;;) {
        const size_t child = BRANCHES * i + 1;
        if (child >= n) break;
        size_t least = child;
        const size_t end = child + BRANCHES < n ? child + BRANCHES : n;
        for (size_t c = child + 1; c < end; c++)
            if (event[c].time < event[least].time) least = c;
        if (event[least].time >= last.time) break;
        event[i] = event[least];
        i = least;
    }
    event[i] = last;
    return first;
}
