/* What a set of object ranges touches, per OST and disk. Internal.
 *
 * On each disk only the number of blocks, the first, the last and the number of holes are kept:
 * enough for every feature, and enough to join two sets of which one lies wholly before the other
 * in the file. They may share the request at their border; it is counted once.
 */
#ifndef SDS_TOUCHED_H
#define SDS_TOUCHED_H

#include "disk_map.h"

/* Touched positions of one line (a disk, or an OST's requests); count 0: none. */
typedef struct sds__line {
    int64_t count;
    int64_t first;
    int64_t last;
    int64_t holes; /* neighbours that differ by more than 1 */
} sds__line;

typedef struct sds__touched {
    const sds__disk_map *map;
    sds__line *requests; /* n_slots: requests of each OST */
    sds__line *disks;    /* n_slots * n_lanes: blocks of each disk; the same array as requests
                            where one disk stands for all */
} sds__touched;

/* Lines to allocate for one set. */
int64_t sds__touched_lines(const sds__disk_map *map);

/* Use lines (sds__touched_lines of them) for an empty set. */
void sds__touched_init(sds__touched *touched, const sds__disk_map *map, sds__line lines[]);

void sds__touched_clear(sds__touched *touched);

void sds__touched_copy(sds__touched *into, const sds__touched *from);

/* Add file range [begin, end), which lies after everything added so far. */
void sds__touched_add(sds__touched *touched, int64_t begin, int64_t end);

/* Add another set moved by a multiple of map->symmetry_bytes, so that it lies after everything
 * added so far. The sets differ. */
void sds__touched_join(sds__touched *into, const sds__touched *other, int64_t move_bytes);

/* Features that follow from the set; runs, bytes_useful and exact are left alone. */
sds_status sds__touched_features(const sds__touched *touched, sds_features *out);

#endif
