/* From file bytes to OSTs, requests and disk positions. Internal.
 *
 * A file range on one OST is a range of that OST's object, because whole stripes between its ends
 * follow each other in the object. So one range of a file, however long, is at most one range
 * per OST, and within an OST order in the file is order in the object and on every disk.
 */
#ifndef SDS_DISK_MAP_H
#define SDS_DISK_MAP_H

#include "sds/geometry.h"

typedef struct sds__disk_map {
    int64_t stripe_bytes, stripe_count;
    int64_t unit_bytes, data_disks, request_bytes;
    int64_t first_stripe; /* of all ranges that will be mapped */
    int64_t first_ost;
    int64_t n_slots; /* OSTs that can be touched: slot = (stripe - first_stripe) % stripe_count */

    /* Where a request puts the same number of blocks on every disk, one disk stands for all of
     * an OST, and its positions are counted in requests: blocks_per_row each. Else 0. */
    int64_t blocks_per_row;
    int64_t n_lanes; /* disks per OST that are told apart: 1 where blocks_per_row > 0 */

    /* Moving all bytes by a multiple of this moves whole positions from disks to disks.
     * INT64_MAX: no such distance fits in 64 bits. */
    int64_t symmetry_bytes;
    int rotates; /* 1: such a move passes from OST to OST; 0: it keeps each OST */

    int64_t cell_bytes; /* bytes of a file in one aligned cell of this size share one request */
} sds__disk_map;

/* Map for ranges within [begin, end). SDS_EINVAL where a size is not positive or too large,
 * SDS_ELIMIT where more disks can be touched than one is ready to keep account of. */
sds_status sds__disk_map_init(sds__disk_map *map, const sds_striping *striping,
                              const sds_raid *raid, int64_t begin, int64_t end);

/* Receives object range [begin, end) of the OST in a slot. */
typedef void sds__object_visitor(void *context, int64_t slot, int64_t begin, int64_t end);

/* Visit the object ranges of file range [begin, end), one per OST touched. */
void sds__disk_map_visit(const sds__disk_map *map, int64_t begin, int64_t end,
                         sds__object_visitor *visit, void *context);

/* All bytes moved by a multiple of symmetry_bytes, which is not negative. */
typedef struct sds__move {
    int64_t steps;        /* OSTs, below stripe_count */
    int64_t object_bytes; /* in the object, for OSTs that are not passed over */
    int64_t wrap_bytes;   /* more of them where the last OST is passed */
} sds__move;

sds__move sds__disk_map_move(const sds__disk_map *map, int64_t move_bytes);

/* Where the object of a slot is found after a move: the slot, and by how much it moves there. */
static inline int64_t sds__moved_slot(const sds__disk_map *map, const sds__move *move, int64_t slot,
                                      int64_t *object_bytes)
{
    /* slot, first_ost and steps are below stripe_count: one subtraction wraps. */
    int64_t ost = map->first_ost + slot, into = slot + move->steps;
    if (ost >= map->stripe_count) ost -= map->stripe_count;
    if (into >= map->stripe_count) into -= map->stripe_count;
    const int wraps = ost + move->steps >= map->stripe_count;
    *object_bytes = move->object_bytes + (wraps ? move->wrap_bytes : 0);
    return into;
}

/* Most object ranges of a file range of some length. */
int64_t sds__disk_map_ranges(const sds__disk_map *map, int64_t length);

#endif
