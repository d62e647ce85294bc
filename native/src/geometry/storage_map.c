#include "storage_map.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "progression.h"
#include "runs_clip.h"

/* Disks kept account of over all components. */
#define MAX_LANES (INT64_C(1) << 18)

/* ---- making ---- */

/* Sums of each OST and disk, all zero. */
static sds_status allocate_sums(sds__disk_sums *sums, int64_t n_osts, int64_t n_lanes)
{
    sums->requests = calloc((size_t)n_osts, sizeof *sums->requests);
    sums->disks = calloc((size_t)(n_osts * n_lanes), sizeof *sums->disks);
    return sums->requests != NULL && sums->disks != NULL ? SDS_OK : SDS_ENOMEM;
}

static void free_sums(sds__disk_sums *sums)
{
    free(sums->requests);
    free(sums->disks);
}

static sds_status take_osts(sds__place *place, const sds_component *component, int64_t n_osts)
{
    place->osts = component->osts;
    if (place->osts == NULL) return SDS_OK;
    if (n_osts <= 0 || n_osts > MAX_LANES) return SDS_ELIMIT;
    char *seen = calloc((size_t)n_osts, 1);
    if (seen == NULL) return SDS_ENOMEM;
    sds_status status = SDS_OK;
    for (int64_t i = 0; i < component->striping.stripe_count && status == SDS_OK; i++) {
        const int64_t ost = place->osts[i];
        if (ost < 0 || ost >= n_osts) {
            status = SDS_EINVAL;
        } else {
            place->repeats |= seen[ost];
            seen[ost] = 1;
        }
    }
    free(seen);
    return status;
}

/* Find the components that hold some of [begin, end). */
static sds_status find_places(sds__storage_map *map, const sds_storage *storage, int64_t begin,
                              int64_t end)
{
    int64_t reached = begin;
    for (size_t i = 0; i < storage->n_components; i++) {
        const sds_component *component = &storage->components[i];
        const int64_t first = sds__greatest(component->begin, begin);
        const int64_t last = sds__least(component->end, end);
        const int is_used = first < last || (begin == end && map->n_places == 0);
        if (!is_used) continue;
        if (begin < end && first != reached) return SDS_EINVAL;
        sds__place *place = &map->places[map->n_places++];
        *place = (sds__place){.begin = component->begin, .end = component->end};
        sds_status status = sds__disk_map_init(&place->map, &component->striping, &storage->raid,
                                               sds__least(first, last), last);
        if (status == SDS_OK) status = take_osts(place, component, storage->n_osts);
        if (status != SDS_OK) return status;
        map->names_osts |= component->osts != NULL;
        reached = last;
    }
    if (map->n_places == 0 || (begin < end && reached != end)) return SDS_EINVAL;
    /* Without names the OSTs of two components cannot be told to be the same or not. */
    for (size_t i = 0; i < map->n_places && map->n_places > 1; i++)
        if (map->places[i].osts == NULL) return SDS_EINVAL;
    return SDS_OK;
}

sds_status sds__storage_map_init(sds__storage_map *map, const sds_storage *storage, int64_t begin,
                                 int64_t end)
{
    memset(map, 0, sizeof *map);
    map->places = calloc(storage->n_components + 1, sizeof *map->places);
    if (map->places == NULL) return SDS_ENOMEM;
    sds_status status = find_places(map, storage, begin, end);
    if (status != SDS_OK) return status;

    map->n_lanes = map->places[0].map.n_lanes; /* the same everywhere: the RAID's */
    map->n_osts = map->names_osts ? storage->n_osts : map->places[0].map.n_slots;
    int64_t lanes, lines = 0;
    if (__builtin_mul_overflow(map->n_osts, map->n_lanes, &lanes) || lanes > MAX_LANES)
        return SDS_ELIMIT;
    for (size_t i = 0; i < map->n_places; i++)
        lines += sds__touched_lines(&map->places[i].map);
    if (lines > 2 * MAX_LANES) return SDS_ELIMIT;
    map->lines = malloc((size_t)lines * sizeof *map->lines);
    if (map->lines == NULL) return SDS_ENOMEM;
    sds__line *next = map->lines;
    for (size_t i = 0; i < map->n_places; i++) {
        sds__place *place = &map->places[i];
        sds__touched_init(&place->touched, &place->map, next);
        next += sds__touched_lines(&place->map);
    }
    status = allocate_sums(&map->read, map->n_osts, map->n_lanes);
    return status == SDS_OK ? allocate_sums(&map->totals, map->n_osts, map->n_lanes) : status;
}

void sds__storage_map_free(sds__storage_map *map)
{
    free_sums(&map->read);
    free_sums(&map->totals);
    free(map->lines);
    free(map->places);
}

/* ---- one read ---- */

const sds__place *sds__storage_map_place(const sds__storage_map *map, int64_t begin, int64_t end)
{
    for (size_t i = 0; i < map->n_places; i++)
        if (map->places[i].begin <= begin && end <= map->places[i].end)
            return map->places[i].repeats ? NULL : &map->places[i];
    return NULL;
}

void sds__storage_map_clear(sds__storage_map *map)
{
    for (size_t i = 0; i < map->n_places; i++)
        sds__touched_clear(&map->places[i].touched);
}

void sds__storage_map_add(sds__storage_map *map, int64_t begin, int64_t end)
{
    for (size_t i = 0; i < map->n_places; i++) {
        sds__place *place = &map->places[i];
        if (place->begin < end && begin < place->end)
            sds__touched_add(&place->touched, sds__greatest(begin, place->begin),
                             sds__least(end, place->end));
    }
}

typedef struct adding {
    sds__place *place;
    sds__deadline *deadline;
} adding;

static sds_status add_runs(void *context, const sds_runs *runs)
{
    const adding *to = context;
    const sds__disk_map *map = &to->place->map;
    sds__progression progression;
    sds__progression_init(&progression, runs, map);
    const int32_t n_sets = sds__progression_sets(&progression);
    const int64_t each = sds__touched_lines(map);
    sds__line *lines = malloc((size_t)n_sets * (size_t)each * sizeof *lines);
    if (lines == NULL) return SDS_ENOMEM;
    sds__touched scratch[SDS__MAX_LEVELS + 1];
    for (int32_t i = 0; i < n_sets; i++)
        sds__touched_init(&scratch[i], map, lines + i * each);
    sds__progression_touch(&progression, to->deadline, &to->place->touched, scratch);
    free(lines);
    return to->deadline->passed ? SDS_ELIMIT : SDS_OK;
}

sds_status sds__storage_map_add_runs(sds__storage_map *map, const sds_runs *runs,
                                     sds__deadline *deadline)
{
    sds_status status = SDS_OK;
    for (size_t i = 0; i < map->n_places && status == SDS_OK; i++) {
        adding to = {&map->places[i], deadline};
        status = sds__runs_clip(runs, to.place->begin, to.place->end, add_runs, &to);
    }
    return status;
}

/* ---- sums ---- */

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

/* The OST of a place's slot. */
static int64_t ost_of(const sds__place *place, int64_t slot)
{
    if (place->osts == NULL) return slot;
    const int64_t stripe = place->map.first_ost + slot, count = place->map.stripe_count;
    return place->osts[stripe < count ? stripe : stripe - count];
}

static void add_place(sds__disk_sums *sums, const sds__place *place, int64_t move_bytes)
{
    const sds__disk_map *map = &place->map;
    const sds__touched *touched = &place->touched;
    const sds__move move = sds__disk_map_move(map, move_bytes);
    const int64_t lanes = map->n_lanes;
    for (int64_t slot = 0; slot < map->n_slots; slot++) {
        if (touched->requests[slot].count == 0) continue;
        int64_t object_bytes;
        const int64_t ost = ost_of(place, sds__moved_slot(map, &move, slot, &object_bytes));
        add_number(sums, &sums->requests[ost], touched->requests[slot].count);
        int64_t disk = lanes == 1 ? 0 : object_bytes / map->unit_bytes % lanes;
        for (int64_t i = 0; i < lanes; i++) {
            add_line(sums, &sums->disks[ost * lanes + disk], &touched->disks[slot * lanes + i]);
            if (++disk == lanes) disk = 0;
        }
    }
}

typedef struct busiest {
    int64_t requests; /* of all OSTs */
    int64_t ost_requests, osts, disks;
    sds__disk_sum most;
} busiest;

static busiest find_busiest(const sds__storage_map *map, const sds__disk_sums *sums)
{
    busiest found = {0};
    sds__disk_sum *most = &found.most;
    for (int64_t ost = 0; ost < map->n_osts; ost++) {
        found.requests += sums->requests[ost];
        found.ost_requests = sds__greatest(found.ost_requests, sums->requests[ost]);
        found.osts += sums->requests[ost] > 0;
    }
    for (int64_t i = 0; i < map->n_osts * map->n_lanes; i++) {
        const sds__disk_sum *disk = &sums->disks[i];
        found.disks += disk->processes > 0;
        most->blocks = sds__greatest(most->blocks, disk->blocks);
        most->gaps = sds__greatest(most->gaps, disk->gaps);
        most->missing = sds__greatest(most->missing, disk->missing);
        most->segments = sds__greatest(most->segments, disk->segments);
        most->processes = sds__greatest(most->processes, disk->processes);
    }
    return found;
}

/* From rows to blocks, where one disk stands for all of an OST; return 1 where it does not fit. */
static int scale(const sds__disk_map *map, busiest *found)
{
    if (map->blocks_per_row == 0) return 0;
    return __builtin_mul_overflow(found->most.blocks, map->blocks_per_row, &found->most.blocks) |
           __builtin_mul_overflow(found->most.missing, map->blocks_per_row, &found->most.missing) |
           __builtin_mul_overflow(found->disks, map->data_disks, &found->disks);
}

/* Every OST has one object of the file: lines need no adding up. */
static int is_simple(const sds__storage_map *map)
{
    return map->n_places == 1 && !map->places[0].repeats;
}

sds_status sds__storage_map_features(sds__storage_map *map, sds_features *out)
{
    memset(out, 0, sizeof *out);
    if (is_simple(map)) return sds__touched_features(&map->places[0].touched, out);
    sds__disk_sums *sums = &map->read;
    memset(sums->requests, 0, (size_t)map->n_osts * sizeof *sums->requests);
    memset(sums->disks, 0, (size_t)(map->n_osts * map->n_lanes) * sizeof *sums->disks);
    for (size_t i = 0; i < map->n_places; i++)
        add_place(sums, &map->places[i], 0);
    busiest found = find_busiest(map, sums);
    int64_t bytes;
    int overflow = sums->overflow | scale(&map->places[0].map, &found);
    overflow |= __builtin_mul_overflow(found.requests, map->places[0].map.request_bytes, &bytes);
    if (overflow) return SDS_EOVERFLOW;
    out->block_depth = (sds_bounds){found.most.blocks, found.most.blocks};
    out->block_gap_count = (sds_bounds){found.most.gaps, found.most.gaps};
    out->block_gap_distance = (sds_bounds){found.most.missing, found.most.missing};
    out->bytes_touched = (sds_bounds){bytes, bytes};
    out->osts_touched = (sds_bounds){found.osts, found.osts};
    out->disks_touched = (sds_bounds){found.disks, found.disks};
    return SDS_OK;
}

void sds__storage_map_count(sds__storage_map *map)
{
    sds__disk_sums *totals = &map->totals;
    if (is_simple(map)) {
        add_place(totals, &map->places[0], 0);
        return;
    }
    for (int64_t ost = 0; ost < map->n_osts; ost++)
        add_number(totals, &totals->requests[ost], map->read.requests[ost]);
    for (int64_t i = 0; i < map->n_osts * map->n_lanes; i++) {
        const sds__disk_sum *read = &map->read.disks[i];
        sds__disk_sum *total = &totals->disks[i];
        add_number(totals, &total->blocks, read->blocks);
        add_number(totals, &total->gaps, read->gaps);
        add_number(totals, &total->missing, read->missing);
        add_number(totals, &total->segments, read->segments);
        total->processes += read->processes > 0; /* through however many components */
    }
}

void sds__storage_map_count_moved(sds__storage_map *map, const sds__place *place,
                                  int64_t move_bytes)
{
    add_place(&map->totals, place, move_bytes);
}

sds_status sds__storage_map_totals(const sds__storage_map *map, sds_operation_features *out)
{
    const sds__disk_map *disks = &map->places[0].map;
    busiest found = find_busiest(map, &map->totals);
    int overflow = map->totals.overflow | scale(disks, &found);
    overflow |=
        __builtin_mul_overflow(found.ost_requests, disks->request_bytes, &out->ost_bytes_touched);
    out->osts_touched = found.osts;
    out->disks_touched = found.disks;
    out->disk_blocks = found.most.blocks;
    out->disk_gap_count = found.most.gaps;
    out->disk_gap_distance = found.most.missing;
    out->disk_segments = found.most.segments;
    out->disk_processes = found.most.processes;
    return overflow ? SDS_EOVERFLOW : SDS_OK;
}

/* ---- OST by OST ---- */

static int64_t number_of(const sds__storage_map *map, int64_t ost)
{
    if (map->names_osts) return ost;
    const sds__disk_map *disks = &map->places[0].map;
    return (disks->first_ost + ost) % disks->stripe_count;
}

static sds_status allocate_loads(const sds__storage_map *map, sds_ost_loads *out)
{
    const size_t osts = (size_t)map->n_osts, disks = osts * (size_t)map->n_lanes;
    out->n_osts = map->n_osts;
    out->n_lanes = map->n_lanes;
    out->ost = malloc(osts * sizeof(int64_t));
    out->bytes = malloc(osts * sizeof(int64_t));
    out->blocks = malloc(disks * sizeof(int64_t));
    out->segments = malloc(disks * sizeof(int64_t));
    out->processes = malloc(disks * sizeof(int64_t));
    const int made = out->ost != NULL && out->bytes != NULL && out->blocks != NULL &&
                     out->segments != NULL && out->processes != NULL;
    return made ? SDS_OK : SDS_ENOMEM;
}

sds_status sds__storage_map_loads(const sds__storage_map *map, sds_ost_loads *out)
{
    const sds_status status = allocate_loads(map, out);
    if (status != SDS_OK) return status;
    const sds__disk_map *disks = &map->places[0].map;
    const int64_t blocks_per_row = disks->blocks_per_row > 0 ? disks->blocks_per_row : 1;
    const int64_t lanes = map->n_lanes;
    /* Slots begin at the OST of the first byte: turn them so that numbers ascend. */
    int64_t first = 0;
    for (int64_t i = 1; i < map->n_osts; i++)
        if (number_of(map, i) < number_of(map, first)) first = i;
    for (int64_t i = 0; i < map->n_osts; i++) {
        const int64_t ost = (first + i) % map->n_osts;
        out->ost[i] = number_of(map, ost);
        out->bytes[i] = map->totals.requests[ost] * disks->request_bytes;
        for (int64_t lane = 0; lane < lanes; lane++) {
            const sds__disk_sum *disk = &map->totals.disks[ost * lanes + lane];
            out->blocks[i * lanes + lane] = disk->blocks * blocks_per_row;
            out->segments[i * lanes + lane] = disk->segments;
            out->processes[i * lanes + lane] = disk->processes;
        }
    }
    return SDS_OK;
}

void sds_ost_loads_free(sds_ost_loads *loads)
{
    free(loads->ost);
    free(loads->bytes);
    free(loads->blocks);
    free(loads->segments);
    free(loads->processes);
}
