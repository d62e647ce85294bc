/* What one process of a simulated independent read asks the file system for, in order, and how
 * long it works in between. Depends on the process alone: not on when answers come. Internal. */
#ifndef SDS_SIMULATE_FETCH_H
#define SDS_SIMULATE_FETCH_H

#include "run_rank.h"
#include "simulate_machine.h"

/* Bytes [low, high) of the file, whole pages. */
typedef struct sds__range {
    int64_t low;
    int64_t high;
} sds__range;

typedef struct sds__fetcher {
    const sds__machine *machine;
    const sds_simulator_operation *operation;
    const sds_runs *runs;
    int64_t data_end;    /* of the dataset in the file, rounded up to pages */
    int64_t fetched_end; /* up to there the client has all that it will want; -1: nothing yet */
    int64_t requests;    /* of the program so far */
    int64_t n_fetches;   /* of the owner's counting */
    int64_t *n_steps;    /* grows with every run and window that is looked at */
    /* Requests near each other are a strip. */
    int64_t n_near;         /* of the next request's strip, before it */
    int64_t strip_low;      /* where it begins, rounded down to pages */
    int64_t strip_bytes[2]; /* of the last two, in whole pages; 0: there were none */
    int64_t copying_ns;     /* into the program's memory, after the request under way */
    int32_t is_regular;     /* no two pieces touch, and requests may be counted in strides */
    sds_extent run;         /* the next one */
    int64_t row_index;      /* of it, in the innermost level */
    int32_t is_done;
    sds_run_cursor cursor; /* behind it */
    sds__ranked ranked;    /* of a sieve */
    int64_t sieved;        /* bytes that its windows have held */
} sds__fetcher;

/* runs and n_steps stay the caller's. */
void sds__fetcher_init(sds__fetcher *fetcher, const sds__machine *machine,
                       const sds_simulator_operation *operation, const sds_runs *runs,
                       int64_t *n_steps);

/* Return 1 and the ranges of the next request for which the process has to wait: at least one and
 * at most list_depth of them (with every other strategy one), ascending and disjoint; *work_ns is
 * what the process does between the former one and this. Return 0 at the end, and what it still
 * does; and where n_steps has passed max_events. */
int sds__fetcher_next(sds__fetcher *fetcher, sds__range ranges[], size_t *n_ranges,
                      int64_t *work_ns);

#endif
