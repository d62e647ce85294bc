#include "disk_sums.h"

#include <stdlib.h>

#include "arithmetic.h"

sds_status sds__disk_sums_init(sds__disk_sums *sums, const sds__disk_map *map)
{
    sums->map = map;
    sums->overflow = 0;
    sums->requests = calloc((size_t)map->n_slots, sizeof *sums->requests);
    sums->disks = calloc((size_t)(map->n_slots * map->n_lanes), sizeof *sums->disks);
    return sums->requests != NULL && sums->disks != NULL ? SDS_OK : SDS_ENOMEM;
}

void sds__disk_sums_free(sds__disk_sums *sums)
{
    free(sums->requests);
    free(sums->disks);
}

static void add_number(sds__disk_sums *sums, int64_t *into, int64_t value)
{
    sums->overflow |= __builtin_add_overflow(*into, value, into);
}

static void add_line(sds__disk_sums *sums, sds__disk_sum *into, const sds__line *line)
{
    if (line->count == 0) return;
    add_number(sums, &into->blocks, line->count);
    add_number(sums, &into->gaps, line->holes);
    add_number(sums, &into->missing, line->last - line->first + 1 - line->count);
    add_number(sums, &into->segments, line->holes + 1);
    into->processes++;
}

void sds__disk_sums_add(sds__disk_sums *sums, const sds__touched *touched, int64_t move_bytes)
{
    const sds__disk_map *map = sums->map;
    const sds__move move = sds__disk_map_move(map, move_bytes);
    for (int64_t slot = 0; slot < map->n_slots; slot++) {
        if (touched->requests[slot].count == 0) continue;
        int64_t object_bytes;
        const int64_t into = sds__moved_slot(map, &move, slot, &object_bytes);
        add_number(sums, &sums->requests[into], touched->requests[slot].count);
        const int64_t lanes = map->n_lanes;
        int64_t disk = lanes == 1 ? 0 : object_bytes / map->unit_bytes % lanes;
        for (int64_t i = 0; i < lanes; i++) {
            add_line(sums, &sums->disks[into * lanes + disk], &touched->disks[slot * lanes + i]);
            if (++disk == lanes) disk = 0;
        }
    }
}

sds_status sds__disk_sums_features(const sds__disk_sums *sums, sds_operation_features *out)
{
    const sds__disk_map *map = sums->map;
    int64_t requests = 0, osts = 0, disks = 0;
    for (int64_t slot = 0; slot < map->n_slots; slot++) {
        requests = sds__greatest(requests, sums->requests[slot]);
        osts += sums->requests[slot] > 0;
    }
    sds__disk_sum most = {0};
    for (int64_t i = 0; i < map->n_slots * map->n_lanes; i++) {
        const sds__disk_sum *disk = &sums->disks[i];
        disks += disk->processes > 0;
        most.blocks = sds__greatest(most.blocks, disk->blocks);
        most.gaps = sds__greatest(most.gaps, disk->gaps);
        most.missing = sds__greatest(most.missing, disk->missing);
        most.segments = sds__greatest(most.segments, disk->segments);
        most.processes = sds__greatest(most.processes, disk->processes);
    }
    int overflow = sums->overflow;
    if (map->blocks_per_row > 0) {
        overflow |= __builtin_mul_overflow(most.blocks, map->blocks_per_row, &most.blocks);
        overflow |= __builtin_mul_overflow(most.missing, map->blocks_per_row, &most.missing);
        disks *= map->data_disks;
    }
    overflow |= __builtin_mul_overflow(requests, map->request_bytes, &out->ost_bytes_touched);
    out->osts_touched = osts;
    out->disks_touched = disks;
    out->disk_blocks = most.blocks;
    out->disk_gap_count = most.gaps;
    out->disk_gap_distance = most.missing;
    out->disk_segments = most.segments;
    out->disk_processes = most.processes;
    return overflow ? SDS_EOVERFLOW : SDS_OK;
}
