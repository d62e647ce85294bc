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

#include "sds/trace_format.h"

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

typedef void (*sds__fold_emit)(void *context, const sds_trace_record *record);

typedef struct sds__fold {
    int32_t n_levels; /* 0: empty */
    int64_t n_reads;  /* in the nest */
    sds__shape shape;
    int64_t last[SDS_MAX_RANK];
    sds__fold_level level[SDS_TRACE_MAX_LOOPS];
    sds__fold_emit emit;
    void *context;
} sds__fold;

/* The first read of a shape. */
void sds__fold_begin(sds__fold *fold, const sds__shape *shape, const sds__fold_read *read,
                     sds__fold_emit emit, void *context);

/* Add a read of the fold's shape. */
void sds__fold_add(sds__fold *fold, const sds__fold_read *read);

/* Emit everything and leave the fold empty. */
void sds__fold_flush(sds__fold *fold);

#endif
