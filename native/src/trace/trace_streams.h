/* Folds of the shapes of reads that came last: programs read several datasets in turn. Internal. */
#ifndef SDS_SRC_TRACE_STREAMS_H
#define SDS_SRC_TRACE_STREAMS_H

#include <stdint.h>

#include "sds/trace_format.h"
#include "trace_fold.h"

#define SDS__N_STREAMS 64 /* shapes that fold at the same time */
#define SDS__N_RECENT 16  /* remembered as the last of a dataset */

/* A read that is being added; its selection is the caller's. */
typedef struct sds__added_read {
    uint32_t dataset;
    uint32_t thread;
    int32_t kind;
    int32_t collective;
    int64_t n_elements;
    int64_t served_by;
    const sds_hyperslab *slab;
    int64_t start_ns;
    int64_t elapsed_ns;
} sds__added_read;

typedef struct sds__stream {
    int32_t place;
    int64_t used_ns;
    sds__fold fold;
} sds__stream;

typedef struct sds__streams {
    sds__stream *recent[SDS__N_RECENT]; /* by dataset */
    sds__stream *stream[SDS__N_STREAMS];
    int32_t n;
    uint64_t hash[SDS__N_STREAMS]; /* of each, side by side: of a read in turn all are looked at */
    int32_t newest;                /* the one that was used last */
    int32_t oldest;
    int32_t newer[SDS__N_STREAMS]; /* used next after each; not set of the newest */
    int32_t older[SDS__N_STREAMS]; /* used next before each; not set of the oldest */
} sds__streams;

/* The stream of this shape, empty or not; NULL where there is none. */
sds__stream *sds__streams_find(const sds__streams *streams, const sds__added_read *read);
/* One that is free, or the one not used for longest, emptied, for a read of another shape. NULL
 * where memory is exhausted. */
sds__stream *sds__streams_take(sds__streams *streams, const sds__added_read *read);
/* Whether one is free, or was not used since. */
int sds__streams_may_take(const sds__streams *streams, int64_t since_ns);
/* Fold a read of the stream's shape. */
void sds__streams_add(sds__streams *streams, sds__stream *of, const sds__added_read *read,
                      sds__record_emit emit, void *context);
/* Emit everything and leave all empty. */
void sds__streams_flush(sds__streams *streams);
/* Leave all empty, in the child of a fork. */
void sds__streams_forget(sds__streams *streams);
void sds__streams_free(sds__streams *streams);

#endif
