#include "touched.h"

#include <string.h>

int64_t sds__touched_lines(const sds__disk_map *map)
{
    return map->blocks_per_row > 0 ? map->n_slots : map->n_slots * (1 + map->n_lanes);
}

void sds__touched_init(sds__touched *touched, const sds__disk_map *map, sds__line lines[])
{
    touched->map = map;
    touched->requests = lines;
    touched->disks = map->blocks_per_row > 0 ? lines : lines + map->n_slots;
    sds__touched_clear(touched);
}

void sds__touched_clear(sds__touched *touched)
{
    memset(touched->requests, 0, (size_t)sds__touched_lines(touched->map) * sizeof(sds__line));
}

void sds__touched_copy(sds__touched *into, const sds__touched *from)
{
    memcpy(into->requests, from->requests,
           (size_t)sds__touched_lines(from->map) * sizeof(sds__line));
}

/* Join a line that begins at or after this line's end, or repeats some of its last positions. */
static inline void join_line(sds__line *line, const sds__line *next, int64_t move)
{
    if (next->count == 0) return;
    const int64_t first = next->first + move, last = next->last + move;
    if (line->count == 0) {
        *line = (sds__line){next->count, first, last, next->holes};
        return;
    }
    const int64_t step = first - line->last;
    line->count += next->count + (step < 1 ? step - 1 : 0);
    line->holes += next->holes + (step > 1);
    if (last > line->last) line->last = last;
}

static inline void add_positions(sds__line *line, int64_t first, int64_t last)
{
    if (line->count > 0 && last <= line->last) return; /* the same request once more */
    join_line(line, &(sds__line){last - first + 1, first, last, 0}, 0);
}

/* Blocks of the requests that hold a range, spread over the disks of one OST. */
static void add_blocks(sds__touched *touched, int64_t slot, int64_t first, int64_t last)
{
    const int64_t disks = touched->map->data_disks;
    sds__line *lines = touched->disks + slot * disks;
    int64_t disk = first % disks, position = first / disks;
    const int64_t touched_disks = last - first < disks ? last - first + 1 : disks;
    for (int64_t i = 0; i < touched_disks; i++) {
        add_positions(&lines[disk], position, position + (last - first - i) / disks);
        if (++disk == disks) {
            disk = 0;
            position++;
        }
    }
}

static void add_object_range(void *context, int64_t slot, int64_t begin, int64_t end)
{
    sds__touched *touched = context;
    const sds__disk_map *map = touched->map;
    const int64_t first = begin / map->request_bytes, last = (end - 1) / map->request_bytes;
    add_positions(&touched->requests[slot], first, last);
    if (map->blocks_per_row > 0) return;
    const uint64_t last_byte = (uint64_t)(last * map->request_bytes) + (uint64_t)map->request_bytes;
    add_blocks(touched, slot, first * map->request_bytes / map->unit_bytes,
               (int64_t)((last_byte - 1) / (uint64_t)map->unit_bytes));
}

void sds__touched_add(sds__touched *touched, int64_t begin, int64_t end)
{
    sds__disk_map_visit(touched->map, begin, end, add_object_range, touched);
}

/* Join all lines of one OST to those of another, its object moved by a number of bytes. */
static void join_slot(sds__touched *into, int64_t into_slot, const sds__touched *other,
                      int64_t slot, int64_t move_bytes)
{
    const sds__disk_map *map = into->map;
    join_line(&into->requests[into_slot], &other->requests[slot], move_bytes / map->request_bytes);
    if (map->blocks_per_row > 0) return;
    const int64_t disks = map->data_disks, blocks = move_bytes / map->unit_bytes;
    int64_t disk = blocks % disks, move = blocks / disks;
    for (int64_t i = 0; i < disks; i++) {
        join_line(&into->disks[into_slot * disks + disk], &other->disks[slot * disks + i], move);
        if (++disk == disks) {
            disk = 0;
            move++;
        }
    }
}

void sds__touched_join(sds__touched *into, const sds__touched *other, int64_t move_bytes)
{
    const sds__disk_map *map = into->map;
    const sds__move move = sds__disk_map_move(map, move_bytes);
    for (int64_t slot = 0; slot < map->n_slots; slot++) {
        if (other->requests[slot].count == 0) continue;
        int64_t object_bytes;
        const int64_t into_slot = sds__moved_slot(map, &move, slot, &object_bytes);
        join_slot(into, into_slot, other, slot, object_bytes);
    }
}

sds_status sds__touched_features(const sds__touched *touched, sds_features *out)
{
    const sds__disk_map *map = touched->map;
    int64_t requests = 0, osts = 0, depth = 0, gaps = 0, distance = 0, disks = 0;
    for (int64_t slot = 0; slot < map->n_slots; slot++) {
        requests += touched->requests[slot].count;
        osts += touched->requests[slot].count > 0;
    }
    for (int64_t i = 0; i < map->n_slots * map->n_lanes; i++) {
        const sds__line *line = &touched->disks[i];
        if (line->count == 0) continue;
        disks++;
        if (line->count > depth) depth = line->count;
        if (line->holes > gaps) gaps = line->holes;
        const int64_t missing = line->last - line->first + 1 - line->count;
        if (missing > distance) distance = missing;
    }
    if (map->blocks_per_row > 0) {
        depth *= map->blocks_per_row;
        distance *= map->blocks_per_row;
        disks *= map->data_disks;
    }
    int64_t bytes;
    if (__builtin_mul_overflow(requests, map->request_bytes, &bytes)) return SDS_EOVERFLOW;
    out->block_depth = (sds_bounds){depth, depth};
    out->block_gap_count = (sds_bounds){gaps, gaps};
    out->block_gap_distance = (sds_bounds){distance, distance};
    out->bytes_touched = (sds_bounds){bytes, bytes};
    out->osts_touched = (sds_bounds){osts, osts};
    out->disks_touched = (sds_bounds){disks, disks};
    return SDS_OK;
}
