/* What is read, and how many requests it makes. Internal.
 *
 * The requests of a regular access follow from its levels. Those of a list take a walk: while ways
 * to read it are compared, they are taken from a census of its holes instead, which is one walk
 * whatever the number of ways. */
#ifndef SDS_READ_SHAPE_H
#define SDS_READ_SHAPE_H

#include "pieces.h"

#define SDS__MAX_HOLE_BOUNDS 12

/* The holes of a list, by size: classes between bounds, which are sorted. */
typedef struct sds__hole_census {
    int n_bounds;
    int64_t bound[SDS__MAX_HOLE_BOUNDS];
    int64_t holes[SDS__MAX_HOLE_BOUNDS + 1]; /* class c: holes longer than c of the bounds */
    int64_t bytes[SDS__MAX_HOLE_BOUNDS + 1];
    int64_t span;
} sds__hole_census;

/* At most SDS__MAX_HOLE_BOUNDS different ones. */
void sds__census_add_bound(sds__hole_census *census, int64_t bound);

/* Count the holes of a list that is not empty. */
void sds__census_take(sds__hole_census *census, const sds__access *access);

typedef struct sds__read_shape {
    const sds__access *access;      /* not empty where anything is counted */
    const sds__hole_census *census; /* NULL: count exactly */
    int64_t n_pieces;
    int64_t runs;
    int64_t bytes_useful;
} sds__read_shape;

void sds__read_shape_init(sds__read_shape *shape, const sds__access *access);

/* As sds__group_totals_of(). By the census: holes of a list up to max_hole, which is one of its
 * bounds; cuts are taken to be as few as bytes and pieces allow. */
sds__group_totals sds__count(const sds__read_shape *shape, int64_t max_hole, int64_t max_bytes,
                             int64_t max_pieces);

#endif
