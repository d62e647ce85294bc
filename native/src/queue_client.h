/* What a client makes of the runs of one process: its fetches in order, and how long the process
 * works between them. It depends on the process alone, not on when answers come. Internal. */
#ifndef SDS_QUEUE_CLIENT_H
#define SDS_QUEUE_CLIENT_H

#include "arithmetic.h"
#include "sds/queues.h"

/* 36 years. */
#define SDS__QUEUE_MAX_NS (INT64_C(1) << 60)

/* SDS__QUEUE_MAX_NS where it is more. */
static inline int64_t sds__queue_times_ns(int64_t n, int64_t ns)
{
    int64_t product;
    if (__builtin_mul_overflow(n, ns, &product)) return SDS__QUEUE_MAX_NS;
    return sds__least(product, SDS__QUEUE_MAX_NS);
}

typedef struct sds__queue_walk {
    const sds_queue_stream *stream;
    const sds_queue_client *client;
    int32_t n_levels;
    /* Whole nanoseconds per run, so that processes that pass over as many runs in other portions
     * stay in step. */
    int64_t run_ns;
    int64_t copy_ns; /* of its bytes */
    int64_t index[SDS_MAX_RANK];
    int64_t offset; /* of the next run */
    int64_t done;   /* runs, those of the fetch under way included */
    int64_t total;
    int64_t fetched_end; /* the client has what it needs up to there */
    int64_t near;        /* runs in a row */
    int64_t strip_low;   /* of the near runs */
    int64_t strip[2];    /* lengths of the last two */
    int64_t low, high;   /* of the fetch under way */
    int64_t copying_ns;  /* of the run fetched last, when it has come */
    int64_t steps;       /* rows looked at */
} sds__queue_walk;

/* stream and client stay the caller's. */
void sds__queue_walk_init(sds__queue_walk *walk, const sds_queue_stream *stream, int32_t n_levels,
                          const sds_queue_client *client, int64_t run_ns, int64_t copy_ns);

/* Go on to the next fetch, [low, high); *working_ns: of the process before it. 0: it has all, and
 * still works so long. */
int sds__queue_next_fetch(sds__queue_walk *walk, int64_t *working_ns);

#endif
