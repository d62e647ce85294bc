#include "disk_map.h"

#include <limits.h>
#include <string.h>

#include "arithmetic.h"

/* Disks kept account of; the largest Lustre file has 2000 OSTs. */
#define MAX_LANES (INT64_C(1) << 18)
/* Sizes past this cannot be told from mistakes, and keep sums within 64 bits. */
#define MAX_SIZE_BYTES (INT64_C(1) << 50)

/* Set what follows from the sizes alone: which disks look alike, and what moves map to moves. */
static void find_symmetry(sds__disk_map *map)
{
    int64_t row;
    const int overflow = __builtin_mul_overflow(map->unit_bytes, map->data_disks, &row);
    map->blocks_per_row = !overflow && map->request_bytes % row == 0 ? map->request_bytes / row : 0;
    map->n_lanes = map->blocks_per_row > 0 ? 1 : map->data_disks;
    map->cell_bytes = sds__greatest_common_divisor(map->request_bytes, map->stripe_bytes);
    if (map->stripe_count == 1) map->cell_bytes = map->request_bytes;

    /* Within an object, requests and blocks begin anew together after this many bytes. */
    const int64_t joint = sds__least_common_multiple(map->request_bytes, map->unit_bytes);
    map->rotates = map->stripe_count > 1 && map->stripe_bytes % joint == 0;
    if (map->rotates) {
        map->symmetry_bytes = map->stripe_bytes;
    } else if (map->stripe_count == 1) {
        map->symmetry_bytes = joint;
    } else {
        const int64_t in_object =
            joint == INT64_MAX ? joint : sds__least_common_multiple(joint, map->stripe_bytes);
        if (in_object == INT64_MAX ||
            __builtin_mul_overflow(in_object, map->stripe_count, &map->symmetry_bytes))
            map->symmetry_bytes = INT64_MAX;
    }
}

sds_status sds__disk_map_init(sds__disk_map *map, const sds_striping *striping,
                              const sds_raid *raid, int64_t begin, int64_t end)
{
    const int64_t sizes[] = {striping->stripe_bytes, raid->unit_bytes, raid->min_request_bytes};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] <= 0 || sizes[i] > MAX_SIZE_BYTES) return SDS_EINVAL;
    if (striping->stripe_count <= 0 || raid->data_disks <= 0) return SDS_EINVAL;
    if (begin < 0 || end < begin) return SDS_EINVAL;

    memset(map, 0, sizeof *map);
    map->stripe_bytes = striping->stripe_bytes;
    map->stripe_count = striping->stripe_count;
    map->unit_bytes = raid->unit_bytes;
    map->data_disks = raid->data_disks;
    map->request_bytes = raid->min_request_bytes;
    find_symmetry(map);

    map->first_stripe = begin / map->stripe_bytes;
    map->first_ost = map->first_stripe % map->stripe_count;
    const int64_t last_stripe = end > begin ? (end - 1) / map->stripe_bytes : map->first_stripe;
    const int64_t stripes = last_stripe - map->first_stripe + 1;
    map->n_slots = stripes < map->stripe_count ? stripes : map->stripe_count;
    int64_t lanes;
    if (__builtin_mul_overflow(map->n_slots, map->n_lanes, &lanes) || lanes > MAX_LANES)
        return SDS_ELIMIT;
    return SDS_OK;
}

void sds__disk_map_visit(const sds__disk_map *map, int64_t begin, int64_t end,
                         sds__object_visitor *visit, void *context)
{
    const int64_t size = map->stripe_bytes, count = map->stripe_count;
    if (count == 1) {
        visit(context, 0, begin, end);
        return;
    }
    const int64_t first = begin / size, last = (end - 1) / size;
    const int64_t first_byte = begin - first * size, end_byte = end - last * size;
    int64_t slot = (first - map->first_stripe) % count;
    int64_t ost = first % count, round = first / count;
    if (first == last) {
        visit(context, slot, round * size + first_byte, round * size + end_byte);
        return;
    }
    const int64_t osts = last - first < count ? last - first + 1 : count;
    int64_t ending = last - (last - first) % count; /* the last stripe on the same OST */
    for (int64_t i = 0; i < osts; i++) {
        const int64_t end_round = round + (ending - (first + i)) / count;
        visit(context, slot, round * size + (i == 0 ? first_byte : 0),
              end_round * size + (ending == last ? end_byte : size));
        ending = ending == last ? last + 1 - count : ending + 1;
        if (++slot == count) slot = 0;
        if (++ost == count) {
            ost = 0;
            round++;
        }
    }
}

sds__move sds__disk_map_move(const sds__disk_map *map, int64_t move_bytes)
{
    if (!map->rotates) return (sds__move){0, move_bytes / map->stripe_count, 0};
    const int64_t stripes = move_bytes / map->stripe_bytes;
    return (sds__move){stripes % map->stripe_count, stripes / map->stripe_count * map->stripe_bytes,
                       map->stripe_bytes};
}

int64_t sds__disk_map_ranges(const sds__disk_map *map, int64_t length)
{
    const int64_t stripes = (length - 1) / map->stripe_bytes + 2;
    return stripes < map->n_slots ? stripes : map->n_slots;
}
