/* The event loop of the simulator: ranges asked for by clients travel to OSTs, wait for disks, and
 * come back through the OST's link. Internal.
 *
 * What happens at one instant is handled together: first everything that ends or arrives, then
 * every OST that it concerns decides what to do next. So the order of clients never matters, and
 * clients that ask for the same at the same time get it at the same time. */
#ifndef SDS_SIMULATE_ENGINE_H
#define SDS_SIMULATE_ENGINE_H

#include "event_queue.h"
#include "simulate_disk.h"
#include "simulate_fetch.h"

/* A request to an OST, and its reply. */
typedef struct sds__message {
    int32_t client;
    int32_t part; /* of which it is, or -1: alone */
    int32_t ost;
    int32_t n_waiting; /* disks that it still waits for */
    int64_t low;       /* bytes of the object */
    int64_t high;
    int32_t next; /* in a list of messages; -1: the last */
} sds__message;

/* What one range asks of one OST, where that takes several messages. */
typedef struct sds__part {
    int32_t client;
    int32_t ost;
    int32_t n_in_flight;
    int64_t sent;     /* bytes of the object, up to there */
    int64_t promised; /* likewise, with the messages that replies have yet to set off */
    int64_t high;
    int32_t next; /* in the list of free ones */
} sds__part;

/* One that waits for answers: processes that do the same at the same time, on the nodes given. */
typedef struct sds__client {
    int64_t done_ns;
    int64_t n_waiting; /* messages and parts */
    size_t n_ranges;
    sds__range *ranges; /* of the request under way; the caller's; what is asked for is taken off */
    int64_t process;    /* the first of them */
    const uint64_t *nodes;
    int64_t n_nodes;
} sds__client;

typedef struct sds__ost {
    int64_t link_free_ns;
    int64_t link_busy_ns;
    int32_t arrived; /* lists of messages, of this instant */
    int32_t ready;
    int32_t is_concerned;
} sds__ost;

/* Called when all ranges of a client's request have come, at done_ns or later. */
typedef sds_status (*sds__answered)(void *context, int32_t client, int64_t done_ns);

/* Called at a time asked for by sds__engine_wake; at one instant in the order of processes. */
typedef sds_status (*sds__awake)(void *context, int32_t client, int64_t now_ns);

typedef struct sds__engine {
    const sds__machine *machine;
    sds__answered answered;
    sds__awake awake; /* the caller's, after sds__engine_init; NULL: nobody is woken */
    void *context;
    sds__event_queue queue;
    size_t n_osts;
    sds__ost *ost;
    int64_t blocks_left;
    sds__disk *disk; /* n_disks of each OST */
    size_t n_clients;
    sds__client *client;
    size_t node_words; /* of a set of nodes */
    uint64_t *nodes_met;
    sds__message *message;
    size_t n_messages;
    int32_t free_message;
    sds__part *part;
    size_t n_parts;
    int32_t free_part;
    int32_t *concerned; /* OSTs of this instant */
    size_t n_concerned;
    sds__client **woken; /* of this instant */
    size_t n_woken;
    sds__message **ready;
    size_t ready_room;
    sds_simulated *counts;
} sds__engine;

/* clients and their nodes stay the caller's. node_words: of each set of nodes. SDS_ENOMEM. */
sds_status sds__engine_init(sds__engine *engine, const sds__machine *machine, size_t n_clients,
                            sds__client *clients, size_t node_words, sds__answered answered,
                            void *context, sds_simulated *counts);
void sds__engine_free(sds__engine *engine);

/* The client sends its request for client.ranges (one at least) at this time. */
sds_status sds__engine_send(sds__engine *engine, int32_t client, int64_t time_ns);

/* Call awake() for the client at this time, for which it is not waiting yet. */
sds_status sds__engine_wake(sds__engine *engine, int32_t client, int64_t time_ns);

/* Until nothing is under way. SDS_ELIMIT, SDS_ENOMEM, or what answered() or awake() returned. */
sds_status sds__engine_run(sds__engine *engine);

#endif
