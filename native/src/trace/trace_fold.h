/* Folds a stream of reads of one shape into records with nested loops, as the reads come.
 *
 * The fold holds a nest of levels, innermost first. Each level but the outermost has a known
 * repeat; the outermost is open-ended. A read that is where the nest expects it only counts. One
 * that is not either lengthens a level that just ended, opens a new outermost level around a nest
 * that is complete, or ends the nest: what is complete is emitted, what is not becomes the new
 * nest. Nothing is buffered, so a million reads cost what ten do. */
#ifndef SDS_SRC_TRACE_FOLD_H
#define SDS_SRC_TRACE_FOLD_H

#include <stdint.h>

#include "bytes.h"
#include "sds/trace_format.h"
#include "trace_layout.h"

/* What reads that fold together share. Packed, as what follows is ordered, by what is looked at
 * together: a small read leaves little of the trace in the processor's nearest cache, and every
 * line fetched costs as much as the arithmetic on it. */
typedef struct sds__shape {
    uint32_t dataset;
    uint32_t thread;
    int32_t kind;
    int32_t rank;
    int64_t n_elements;
    int64_t served_by;
    int32_t collective; /* 0 or 1 */
    struct {
        int64_t stride;
        int64_t count;
        int64_t block;
    } axis[SDS_MAX_RANK];
} sds__shape;

/* What they do not share. */
typedef struct sds__fold_read {
    const int64_t *start;
    int64_t start_ns;
    int64_t elapsed_ns;
} sds__fold_read;

/* What a record says of the reads that it stands for. */
typedef struct sds__fold_times {
    int64_t first_start_ns;
    int64_t last_start_ns;
    int64_t sum_ns;
    int64_t min_ns;
    int64_t max_ns;
    uint32_t latency[SDS_TRACE_LATENCY_BUCKETS];
} sds__fold_times;

typedef struct sds__fold_level {
    int64_t repeat; /* iterations of a complete instance; unused in the outermost level */
    int64_t done;   /* whole iterations of the present instance that its times hold */
    int64_t advance[SDS_MAX_RANK];
    sds__fold_times times;
    int64_t origin[SDS_MAX_RANK]; /* start of the present instance */
} sds__fold_level;

typedef struct sds__fold {
    int32_t n_levels; /* 0: empty */
    int64_t n_reads;  /* in the nest */
    sds__shape shape;
    int64_t last[SDS_MAX_RANK];
    sds__fold_level level[SDS_TRACE_MAX_LOOPS];
    sds__record_emit emit;
    void *context;
} sds__fold;

static inline int64_t sds__saturating_add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static inline void sds__times_add_read(sds__fold_times *times, const sds__fold_read *read,
                                       int is_first)
{
    const int64_t elapsed_ns = read->elapsed_ns < 0 ? 0 : read->elapsed_ns;
    if (is_first) times->first_start_ns = read->start_ns;
    times->last_start_ns = read->start_ns;
    times->sum_ns = sds__saturating_add(times->sum_ns, elapsed_ns);
    if (elapsed_ns < times->min_ns) times->min_ns = elapsed_ns;
    if (elapsed_ns > times->max_ns) times->max_ns = elapsed_ns;
    times->latency[sds__latency_bucket(elapsed_ns)]++;
}

/* start == origin + n * advance */
static inline int sds__fold_is_at(const sds__fold *fold, const int64_t start[],
                                  const int64_t origin[], int64_t n, const int64_t advance[])
{
    for (int32_t axis = 0; axis < fold->shape.rank; axis++) {
        const uint64_t step = (uint64_t)n * (uint64_t)advance[axis];
        if ((uint64_t)start[axis] != (uint64_t)origin[axis] + step) return 0;
    }
    return 1;
}

/* Count a read that is one step of the innermost level behind the last one: nearly every read.
 * 0 where it is not. */
static inline int sds__fold_step(sds__fold *fold, const sds__fold_read *read)
{
    sds__fold_level *inner = &fold->level[0];
    /* A record counts in 32 bits. */
    if (fold->n_reads >= UINT32_MAX) return 0;
    const int inside = fold->n_levels == 1
                           ? inner->done > 1
                           : fold->n_levels > 1 && inner->done > 0 && inner->done < inner->repeat;
    if (!inside || !sds__fold_is_at(fold, read->start, fold->last, 1, inner->advance)) return 0;
    for (int32_t axis = 0; axis < fold->shape.rank; axis++)
        fold->last[axis] = sds__wrap_add(fold->last[axis], inner->advance[axis]);
    sds__times_add_read(&inner->times, read, 0);
    inner->done++;
    fold->n_reads++;
    return 1;
}

/* The first read of a shape. */
void sds__fold_begin(sds__fold *fold, const sds__shape *shape, const sds__fold_read *read,
                     sds__record_emit emit, void *context);

/* The reads of a record of one loop at most, of which the next ones are to go on. */
void sds__fold_resume(sds__fold *fold, const sds_trace_record *record, sds__record_emit emit,
                      void *context);

/* Add a read of the fold's shape. */
void sds__fold_add(sds__fold *fold, const sds__fold_read *read);

/* Emit everything and leave the fold empty. */
void sds__fold_flush(sds__fold *fold);

#endif
