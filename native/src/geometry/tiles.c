#include "sds/tiles.h"

#include <stddef.h>

#define NOT_HELD (-1)

/* Blocks that touch, and a block that is alone, are selected index by index: no edge cuts one. */
static sds_hyperslab without_touching_blocks(const sds_hyperslab *slab)
{
    sds_hyperslab out = *slab;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        if (slab->count[axis] > 1 && slab->stride[axis] != slab->block[axis]) continue;
        out.count[axis] = slab->count[axis] * slab->block[axis];
        out.stride[axis] = out.block[axis] = 1;
    }
    return out;
}

static int64_t tiles_between(int64_t first, int64_t last, int64_t size)
{
    return last / size - first / size + 1;
}

/* Tiles of a number of indices that are touched on one axis, at least one; one more than a read may
 * touch for all that are more. */
static int64_t touched_on_axis(const sds_hyperslab *slab, int32_t axis, int64_t size)
{
    const int64_t start = slab->start[axis], stride = slab->stride[axis];
    const int64_t count = slab->count[axis], block = slab->block[axis];
    /* Only between blocks that are a tile apart can one be left out, and then none is shared. */
    if (count == 1 || stride - block < size) {
        const int64_t n = tiles_between(start, start + (count - 1) * stride + block - 1, size);
        return n > SDS_MAX_TILES_OF_READ ? SDS_MAX_TILES_OF_READ + 1 : n;
    }
    int64_t n = 0;
    for (int64_t i = 0; i < count && n <= SDS_MAX_TILES_OF_READ; i++) {
        const int64_t begin = start + i * stride;
        n += tiles_between(begin, begin + block - 1, size);
    }
    return n > SDS_MAX_TILES_OF_READ ? SDS_MAX_TILES_OF_READ + 1 : n;
}

int64_t sds_tiles_touched(const sds_tiles *tiles, const sds_hyperslab *slab)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < slab->rank; axis++)
        if (slab->count[axis] < 1 || slab->block[axis] < 1) return 0;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        n *= touched_on_axis(slab, axis, tiles->shape[axis]);
        if (n > SDS_MAX_TILES_OF_READ) return SDS_MAX_TILES_OF_READ + 1;
    }
    return n;
}

/* The index of a number in the list; NOT_HELD where it is not there. Where nothing is listed, as of
 * a replica that is not built yet, every tile is held. after: that of the number asked for before,
 * which the one after it most often follows. */
static int32_t find_tile(const sds_tiles *tiles, int64_t number, int32_t after)
{
    if (tiles->number == NULL) return 0;
    if (after + 1 < tiles->n && tiles->number[after + 1] == number) return after + 1;
    int32_t low = 0, high = tiles->n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (tiles->number[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < tiles->n && tiles->number[low] == number ? low : NOT_HELD;
}

/* The part of a selection on one axis that begins with its index `at` and lies evenly in one tile
 * of a number of indices; returns how many indices it has. */
static int64_t cut_part(const sds_hyperslab *slab, int32_t axis, int64_t at, int64_t size,
                        int64_t *tile, sds_hyperslab *part)
{
    const int64_t block = slab->block[axis], stride = slab->stride[axis];
    const int64_t within = at % block;
    const int64_t begin = slab->start[axis] + at / block * stride + within;
    *tile = begin / size;
    part->start[axis] = begin - *tile * size;
    const int64_t room = size - part->start[axis];
    part->stride[axis] = stride;
    part->block[axis] = block;
    if (within != 0 || block > room) { /* a block of which an edge cuts something off */
        part->count[axis] = 1;
        part->block[axis] = block - within < room ? block - within : room;
        return part->block[axis];
    }
    const int64_t left = slab->count[axis] - at / block;
    const int64_t fits = (room - block) / stride + 1;
    part->count[axis] = fits < left ? fits : left;
    return part->count[axis] * block;
}

static void cut(sds_tile_walk *walk, int32_t axis)
{
    walk->taken[axis] =
        cut_part(&walk->slab, axis, walk->at[axis], walk->candidate->tiles.shape[axis],
                 &walk->tile[axis], &walk->part);
}

/* To the next part of an axis; 0 where it was the last one, and the first comes again. */
static int step(sds_tile_walk *walk, int32_t axis)
{
    walk->at[axis] += walk->taken[axis];
    const int is_there = walk->at[axis] < walk->slab.count[axis] * walk->slab.block[axis];
    if (!is_there) walk->at[axis] = 0;
    cut(walk, axis);
    return is_there;
}

/* To the next tile of an axis. */
static int step_tile(sds_tile_walk *walk, int32_t axis)
{
    const int64_t left = walk->tile[axis];
    while (step(walk, axis))
        if (walk->tile[axis] != left) return 1;
    return 0;
}

static int32_t find_walked(sds_tile_walk *walk)
{
    int64_t number = 0;
    for (int32_t axis = 0; axis < walk->slab.rank; axis++)
        number = number * walk->grid[axis] + walk->tile[axis];
    const sds_tiles *tiles = &walk->candidate->tiles;
    const int32_t before = walk->known;
    /* Several pieces may lie in one tile. */
    if (before >= 0 && tiles->number != NULL && tiles->number[before] == number) return before;
    return walk->known = find_tile(tiles, number, before);
}

void sds_tile_walk_init(sds_tile_walk *walk, const sds_candidate *candidate,
                        const sds_hyperslab *slab)
{
    const sds_tiles *tiles = &candidate->tiles;
    walk->candidate = candidate;
    walk->slab = without_touching_blocks(slab);
    walk->part.rank = slab->rank;
    walk->known = NOT_HELD;
    walk->done = 0;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        walk->grid[axis] = (tiles->extent[axis] - 1) / tiles->shape[axis] + 1;
        walk->at[axis] = 0;
        if (walk->slab.count[axis] * walk->slab.block[axis] < 1)
            walk->done = 1;
        else
            cut(walk, axis);
    }
}

int sds_tile_walk_next(sds_tile_walk *walk, sds_tile_piece *out)
{
    if (walk->done) return 0;
    const int32_t rank = walk->slab.rank;
    const int32_t found = find_walked(walk);
    const uint32_t *place = walk->candidate->tiles.place;
    out->place = found < 0 ? NOT_HELD : place == NULL ? 0 : (int32_t)place[found];
    /* An order that a table was checked for is one. */
    (void)sds_hyperslab_permute(&walk->part, walk->candidate->order, &out->slab);
    for (int32_t axis = 0; axis < rank; axis++) {
        out->at[axis] = walk->at[axis];
        out->shape[axis] = walk->taken[axis];
    }
    int32_t axis = rank - 1;
    while (axis >= 0 && !step(walk, axis))
        axis--;
    walk->done = axis < 0;
    return 1;
}

int sds_tiles_hold(const sds_candidate *candidate, const sds_hyperslab *slab)
{
    const int64_t n = sds_tiles_touched(&candidate->tiles, slab);
    if (n == 0 || n > SDS_MAX_TILES_OF_READ) return 0;
    sds_tile_walk walk;
    sds_tile_walk_init(&walk, candidate, slab);
    int32_t axis;
    do {
        if (find_walked(&walk) < 0) return 0;
        axis = slab->rank - 1;
        while (axis >= 0 && !step_tile(&walk, axis))
            axis--;
    } while (axis >= 0);
    return 1;
}

/* How many parts a selection has on one axis; the longest of them goes to an axis of kept, and its
 * number of indices and the first of them to *length and *first. */
static int64_t count_parts(const sds_hyperslab *slab, int32_t axis, int64_t size,
                           sds_hyperslab *kept, int64_t *length, int64_t *first)
{
    const int64_t n_indices = slab->count[axis] * slab->block[axis];
    sds_hyperslab part;
    int64_t n = 0, tile, taken;
    *length = *first = 0;
    for (int64_t at = 0; at < n_indices; at += taken) {
        n++;
        taken = cut_part(slab, axis, at, size, &tile, &part);
        if (taken <= *length) continue;
        *length = taken;
        *first = at;
        kept->start[axis] = part.start[axis];
        kept->stride[axis] = part.stride[axis];
        kept->count[axis] = part.count[axis];
        kept->block[axis] = part.block[axis];
    }
    return n;
}

int64_t sds_tile_pieces(const sds_candidate *candidate, const sds_hyperslab *slab,
                        sds_tile_piece *longest)
{
    const sds_hyperslab even = without_touching_blocks(slab);
    sds_hyperslab kept = {.rank = slab->rank};
    int64_t n = 1;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        const int64_t size = candidate->tiles.shape[axis];
        int64_t n_parts, length, first;
        if (longest == NULL && even.block[axis] == 1) { /* no edge cuts one */
            n_parts = touched_on_axis(&even, axis, size);
        } else {
            n_parts = count_parts(&even, axis, size, &kept, &length, &first);
            if (longest != NULL) longest->shape[axis] = length, longest->at[axis] = first;
        }
        if (__builtin_mul_overflow(n, n_parts, &n)) n = INT64_MAX;
    }
    if (longest == NULL) return n;
    longest->place = NOT_HELD;
    (void)sds_hyperslab_permute(&kept, candidate->order, &longest->slab);
    return n;
}

static int64_t bytes_of_one(const sds_candidate *candidate, const sds_table_dataset *dataset)
{
    int64_t n_bytes = dataset->element_bytes;
    for (int32_t axis = 0; axis < candidate->rank; axis++)
        n_bytes *= candidate->tiles.shape[axis];
    return n_bytes;
}

void sds_tile_array(const sds_candidate *candidate, const sds_table_dataset *dataset, int32_t place,
                    sds_array *out)
{
    out->rank = candidate->rank;
    out->element_bytes = dataset->element_bytes;
    out->offset_bytes = candidate->data_offset_bytes + place * bytes_of_one(candidate, dataset);
    for (int32_t axis = 0; axis < candidate->rank; axis++)
        out->extent[axis] = candidate->tiles.shape[candidate->order[axis]];
}

/* What one piece of n costs: its runs, or the bytes from the first to the last of them. */
static double cost_of_piece(const sds_array *tile, const sds_hyperslab *slab, int64_t n,
                            sds_piece_cost *of_one, void *context)
{
    sds_runs runs;
    const double in_runs = of_one(context, tile, slab, n);
    if (in_runs < 0 || sds_runs_of(tile, slab, &runs) != SDS_OK || runs.n_levels == 0)
        return in_runs;
    const sds_array around = {.rank = 1,
                              .extent = {sds_runs_span(&runs) / tile->element_bytes},
                              .element_bytes = tile->element_bytes,
                              .offset_bytes = runs.first_offset};
    const sds_hyperslab all = {.rank = 1, .stride = {1}, .count = {around.extent[0]}, .block = {1}};
    const double at_once = of_one(context, &around, &all, n);
    return at_once >= 0 && at_once < in_runs ? at_once : in_runs;
}

double sds_tiles_cost(const sds_candidate *candidate, const sds_table_dataset *dataset,
                      const sds_hyperslab *slab, double start_s, sds_piece_cost *of_one,
                      void *context)
{
    sds_tile_piece piece;
    sds_array tile;
    const int64_t n = sds_tile_pieces(candidate, slab, &piece);
    double sum = 0, most = 0;
    if (n > SDS_MAX_COUNTED_PIECES) {
        sds_tile_array(candidate, dataset, 0, &tile);
        most = cost_of_piece(&tile, &piece.slab, n, of_one, context);
        if (most < 0) return most;
        sum = (double)n * most;
    } else {
        sds_tile_walk walk;
        sds_tile_walk_init(&walk, candidate, slab);
        while (sds_tile_walk_next(&walk, &piece)) {
            if (piece.place < 0) return -1;
            sds_tile_array(candidate, dataset, piece.place, &tile);
            const double cost = cost_of_piece(&tile, &piece.slab, n, of_one, context);
            if (cost < 0) return cost;
            if (cost > most) most = cost;
            sum += cost;
        }
    }
    sum -= (double)(n - 1) * start_s;
    return sum > most ? sum : most;
}

sds_extent sds_tile_bytes(const sds_candidate *candidate, const sds_table_dataset *dataset,
                          int32_t place)
{
    const int64_t of_one = bytes_of_one(candidate, dataset);
    return (sds_extent){candidate->data_offset_bytes + place * of_one, of_one};
}

int32_t sds_segment_of(const sds_tiles *tiles, int32_t place)
{
    int32_t low = 0, high = tiles->n_segments - 1;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (tiles->segment_end[middle] <= (uint32_t)place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

sds_extent sds_segment_bytes(const sds_candidate *candidate, const sds_table_dataset *dataset,
                             int32_t segment)
{
    const uint32_t *end = candidate->tiles.segment_end;
    const int64_t first = segment > 0 ? end[segment - 1] : 0;
    const int64_t of_one = bytes_of_one(candidate, dataset);
    return (sds_extent){candidate->data_offset_bytes + first * of_one,
                        ((int64_t)end[segment] - first) * of_one};
}
