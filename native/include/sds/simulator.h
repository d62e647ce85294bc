/* A simulated parallel file system: how long an operation of many processes would take on it.
 *
 * Discrete events in whole nanoseconds; chance only where it is asked for, and then from a seed, so
 * that the same input gives the same time to the last bit. What is modelled, and what is not:
 * docs/explanation/simulator.md. Nothing here knows of block depth, block gap or any cost model.
 */
#ifndef SDS_SIMULATOR_H
#define SDS_SIMULATOR_H

#include "sds/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Longer than that, in simulated time, nothing is followed: 36 years. */
#define SDS_SIMULATOR_MAX_NS (INT64_C(1) << 60)

/* Rates are between these, bytes/s; times at most a thousand seconds. */
#define SDS_SIMULATOR_MIN_RATE 1e3
#define SDS_SIMULATOR_MAX_RATE 1e15
#define SDS_SIMULATOR_MAX_COST_S 1e3

typedef struct sds_simulator_parameters {
    sds_striping striping; /* stripe_bytes: a multiple of page_bytes */
    sds_raid raid;

    /* Clients. */
    int64_t page_bytes;           /* what a client fetches is whole pages */
    int64_t read_ahead_bytes;     /* to the next multiple of this; 0: never ahead */
    int64_t read_ahead_gap_bytes; /* requests that begin at most so far behind the one before are */
    int64_t read_ahead_after;     /* near it; near ones in a row after which it begins */
    int64_t rpc_bytes;            /* of one request to an OST, at most; multiple of page_bytes */
    int64_t max_rpcs_in_flight;   /* of one range on one OST */
    int64_t fetch_bytes; /* longer ranges are fetched in parts, one after the other; 0: at once */
    int64_t processes_per_node;
    int64_t processors_per_node; /* that they share for their own work; 0: one for each */
    double client_request_s;     /* per request of the program, without waiting */
    double client_bytes_per_s;   /* into the program's memory */
    double client_jitter_s;      /* independent reads: mean of what chance adds to each fetch */
    double client_start_s; /* likewise: of how late a process begins; its time counts from there */
    int64_t jitter_seed;

    /* Network and servers. */
    double network_latency_s; /* one way */
    double ost_request_s;     /* per reply of an OST */
    double ost_bytes_per_s;   /* replies of an OST */
    int64_t ost_forgets;      /* 0: OSTs keep what was read; 1: but for each disk's last read */

    /* Disks. */
    double disk_settle_s;      /* the shortest seek */
    double disk_full_stroke_s; /* the longest */
    double disk_revolution_s;
    double disk_bytes_per_s;
    int64_t disk_capacity_bytes;
    double disk_request_s; /* after each access, before the next one is chosen */
    double disk_first_s;   /* before the first access; 0: the mean seek and half a revolution */

    /* Collective reads. */
    int64_t n_aggregators;
    int64_t collective_buffer_bytes;
    double shuffle_message_s;   /* per message of an aggregator */
    double shuffle_bytes_per_s; /* of an aggregator */

    int64_t max_events; /* steps included; beyond it the simulation ends with SDS_ELIMIT */
} sds_simulator_parameters;

typedef enum sds_simulator_strategy {
    SDS_SIMULATE_MULTIPLE = 0, /* one request per run */
    SDS_SIMULATE_SIEVE = 1,    /* windows of sieve_buffer_bytes from the first byte to the last */
    SDS_SIMULATE_LIST = 2      /* list_depth runs at once */
} sds_simulator_strategy;

typedef struct sds_simulator_operation {
    sds_array array;               /* as stored */
    int64_t n_processes;           /* >= 0 */
    const sds_hyperslab *slabs;    /* one per process */
    int32_t is_collective;         /* two-phase, whatever the strategy */
    int32_t strategy;              /* sds_simulator_strategy */
    int64_t list_depth;            /* > 0 */
    int64_t sieve_buffer_bytes;    /* > 0 */
    int32_t is_request_by_request; /* 1: nothing is aggregated; for tests: the result is the same */
} sds_simulator_operation;

typedef struct sds_simulated {
    int64_t elapsed_ns; /* until the last process has its last byte */
    int64_t io_ns;      /* of it: reading; all of it where the operation is independent */
    int64_t shuffle_ns; /* of it: from aggregators to processes */
    int64_t bytes_useful;
    int64_t requests;        /* of the program or, in a collective read, of the aggregators */
    int64_t messages;        /* replies of OSTs */
    int64_t bytes_sent;      /* by OSTs */
    int64_t disk_accesses;   /* over all data disks */
    int64_t disk_seeks;      /* of them: those for which the head moved */
    int64_t bytes_from_disk; /* over all data disks */
    int64_t positioning_ns;  /* seeks and rotation, over all data disks */
    int64_t events;          /* of the simulation itself: what it has cost */
    int64_t clients;         /* likewise: processes that were followed one by one */
} sds_simulated;

/* Simulate an operation.
 * link_busy_ns, disk_busy_ns: one per OST (striping.stripe_count), or NULL; how long its link has
 * sent, and how long the busiest of its disks has worked.
 * SDS_EINVAL: a parameter out of range; SDS_EBOUNDS, SDS_EOVERFLOW: a selection; SDS_ELIMIT:
 * max_events or SDS_SIMULATOR_MAX_NS reached, or the file is larger than its disks; SDS_ENOMEM. */
sds_status sds_simulate(const sds_simulator_operation *operation,
                        const sds_simulator_parameters *parameters, sds_simulated *out,
                        int64_t link_busy_ns[], int64_t disk_busy_ns[]);

#ifdef __cplusplus
}
#endif
#endif
