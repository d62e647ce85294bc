/* Byte ranges from several sources, each in file order, merged into maximal ones. Internal. */
#ifndef SDS_EXTENT_MERGE_H
#define SDS_EXTENT_MERGE_H

#include <stddef.h>

#include "sds/geometry.h"

/* First member of what gives ranges sorted by offset, disjoint and not empty. */
typedef struct sds__source {
    int (*next)(struct sds__source *self, sds_extent *out); /* 0: no more */
    sds_extent now;
} sds__source;

typedef struct sds__extent_merge {
    size_t n; /* sources that have something, as a heap: the least offset first */
    sds__source **sources;
} sds__extent_merge;

/* Begin with n sources in an array that is reordered. */
void sds__extent_merge_init(sds__extent_merge *merge, size_t n, sds__source *sources[]);

/* Return 1 and the next range that is in any of them, as long as it can be; 0 at the end. */
int sds__extent_merge_next(sds__extent_merge *merge, sds_extent *out);

#endif
