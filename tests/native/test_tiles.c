/* Reads from a replica of segments, against a walk over every element of the source. */
#include <limits.h>
#include <string.h>

#include "check.h"
#include "sds/candidate.h"
#include "sds/tiles.h"

#define MAX_ELEMENTS 20000
#define MAX_TILES 4096

/* A source, and a replica of some of its tiles. */
typedef struct {
    int64_t extent[SDS_MAX_RANK];
    int64_t shape[SDS_MAX_RANK];
    int64_t grid[SDS_MAX_RANK];
    int32_t order[SDS_MAX_RANK];
    int64_t zeros[SDS_MAX_RANK];
    int64_t number[MAX_TILES];
    uint32_t place[MAX_TILES];
    uint32_t end[MAX_TILES];
    int32_t place_of[MAX_TILES]; /* -1: not held */
    sds_table_dataset dataset;
    sds_candidate candidate;
} subject;

static void make(subject *out, uint64_t *state, int32_t rank, int64_t permille_held)
{
    memset(out, 0, sizeof *out);
    int64_t n_grid = 1;
    for (int32_t axis = 0; axis < rank; axis++) {
        out->extent[axis] = random_between(state, 1, rank == 1 ? 200 : rank < 4 ? 20 : 6);
        out->shape[axis] = random_between(state, 1, out->extent[axis]);
        out->grid[axis] = (out->extent[axis] + out->shape[axis] - 1) / out->shape[axis];
        out->order[axis] = axis;
        n_grid *= out->grid[axis];
    }
    for (int32_t axis = rank - 1; axis > 0; axis--) {
        const int64_t other = random_between(state, 0, axis);
        const int32_t kept = out->order[axis];
        out->order[axis] = out->order[other];
        out->order[other] = kept;
    }
    CHECK(n_grid <= MAX_TILES);
    int32_t n = 0, n_segments = 0;
    for (int64_t i = 0; i < n_grid; i++)
        if (random_between(state, 0, 999) < permille_held) out->number[n++] = i;
    if (n == 0) out->number[n++] = random_between(state, 0, n_grid - 1);
    for (int32_t i = 0; i < n; i++) { /* shuffled as it grows */
        const int64_t other = random_between(state, 0, i);
        out->place[i] = out->place[other];
        out->place[other] = (uint32_t)i;
        if (i + 1 == n || random_u64(state) % 3 == 0) out->end[n_segments++] = (uint32_t)i + 1;
    }
    memset(out->place_of, -1, sizeof out->place_of);
    for (int32_t i = 0; i < n; i++)
        out->place_of[out->number[i]] = (int32_t)out->place[i];
    out->dataset = (sds_table_dataset){.rank = rank, .extent = out->extent, .element_bytes = 8};
    out->candidate = (sds_candidate){.rank = rank,
                                     .order = out->order,
                                     .storage = SDS_TABLE_CONTIGUOUS,
                                     .data_offset_bytes = 1000,
                                     .region_start = out->zeros,
                                     .region_extent = out->extent,
                                     .tiles = {.n = n,
                                               .n_segments = n_segments,
                                               .extent = out->extent,
                                               .shape = out->shape,
                                               .number = out->number,
                                               .place = out->place,
                                               .segment_end = out->end}};
}

/* Small blocks and single elements, far apart and side by side. */
static void select_any(sds_hyperslab *slab, const subject *of, uint64_t *state)
{
    slab->rank = of->dataset.rank;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        const int64_t extent = of->extent[axis];
        slab->start[axis] = random_between(state, 0, extent - 1);
        const int64_t left = extent - slab->start[axis];
        slab->block[axis] =
            random_u64(state) % 2 ? 1 : random_between(state, 1, left < 5 ? left : 5);
        if (random_u64(state) % 8 == 0) slab->block[axis] = left;
        slab->stride[axis] = slab->block[axis] + random_between(state, 0, random_u64(state) % 2);
        if (random_u64(state) % 3 == 0) slab->stride[axis] += random_between(state, 0, extent);
        const int64_t most = (left - slab->block[axis]) / slab->stride[axis] + 1;
        slab->count[axis] = random_between(state, 1, most);
    }
}

/* The index of the source that a selection's n-th on an axis is. */
static int64_t index_of(const sds_hyperslab *slab, int32_t axis, int64_t n)
{
    return slab->start[axis] + n / slab->block[axis] * slab->stride[axis] + n % slab->block[axis];
}

/* What a walk over every element finds: tiles touched, whether all are held, and for each element
 * of the selection the element of the replica that it is. */
typedef struct {
    int64_t n_elements, n_tiles;
    int held;
    int64_t stored[MAX_ELEMENTS];
} truth;

static void walk_elements(const subject *of, const sds_hyperslab *slab, truth *out)
{
    static uint8_t touched[MAX_TILES];
    const int32_t rank = slab->rank;
    int64_t shape[SDS_MAX_RANK];
    sds_hyperslab_shape(slab, shape);
    memset(touched, 0, sizeof touched);
    out->n_elements = 1, out->n_tiles = 0, out->held = 1;
    for (int32_t axis = 0; axis < rank; axis++)
        out->n_elements *= shape[axis];
    CHECK(out->n_elements <= MAX_ELEMENTS);
    for (int64_t i = 0; i < out->n_elements; i++) {
        int64_t within[SDS_MAX_RANK], tile = 0, rest = i, at[SDS_MAX_RANK];
        for (int32_t axis = rank - 1; axis >= 0; axis--) {
            at[axis] = index_of(slab, axis, rest % shape[axis]);
            rest /= shape[axis];
        }
        for (int32_t axis = 0; axis < rank; axis++) {
            tile = tile * of->grid[axis] + at[axis] / of->shape[axis];
            within[axis] = at[axis] % of->shape[axis];
        }
        out->n_tiles += !touched[tile];
        touched[tile] = 1;
        if (of->place_of[tile] < 0) out->held = 0;
        out->stored[i] = of->place_of[tile];
        for (int32_t k = 0; k < rank; k++) {
            const int32_t axis = of->order[k];
            out->stored[i] = out->stored[i] * of->shape[axis] + within[axis];
        }
    }
}

/* Every element of a piece, as the replica's array says where it is. Marks them. */
static void check_piece(const subject *of, const sds_hyperslab *slab, const sds_tile_piece *piece,
                        const truth *expected, uint8_t seen[])
{
    const int32_t rank = slab->rank;
    int64_t whole[SDS_MAX_RANK], n = 1, stored_shape[SDS_MAX_RANK];
    sds_array array;
    sds_hyperslab_shape(slab, whole);
    sds_hyperslab_shape(&piece->slab, stored_shape);
    sds_tile_array(&of->candidate, &of->dataset, piece->place, &array);
    for (int32_t axis = 0; axis < rank; axis++)
        n *= piece->shape[axis];
    sds_runs runs;
    CHECK(sds_runs_of(&array, &piece->slab, &runs) == SDS_OK); /* inside the tile */
    CHECK(sds_runs_bytes(&runs) == n * 8);
    for (int64_t i = 0; i < n; i++) {
        int64_t at[SDS_MAX_RANK], rest = i, selected = 0, offset = 0;
        for (int32_t axis = rank - 1; axis >= 0; axis--) {
            at[axis] = rest % piece->shape[axis];
            rest /= piece->shape[axis];
        }
        for (int32_t axis = 0; axis < rank; axis++)
            selected = selected * whole[axis] + piece->at[axis] + at[axis];
        for (int32_t k = 0; k < rank; k++) {
            CHECK(stored_shape[k] == piece->shape[of->order[k]]);
            offset = offset * array.extent[k] + index_of(&piece->slab, k, at[of->order[k]]);
        }
        CHECK(!seen[selected]);
        seen[selected] = 1;
        CHECK(array.offset_bytes + 8 * offset == 1000 + 8 * expected->stored[selected]);
    }
}

static void check_read(const subject *of, const sds_hyperslab *slab)
{
    static truth expected;
    static uint8_t seen[MAX_ELEMENTS];
    const sds_candidate *candidate = &of->candidate;
    walk_elements(of, slab, &expected);
    const int is_few = expected.n_tiles <= SDS_MAX_TILES_OF_READ;
    CHECK(sds_tiles_touched(&candidate->tiles, slab) ==
          (is_few ? expected.n_tiles : SDS_MAX_TILES_OF_READ + 1));
    CHECK(sds_tiles_hold(candidate, slab) == (expected.held && is_few));
    CHECK(sds_candidate_holds(candidate, slab) == (expected.held && is_few));

    memset(seen, 0, sizeof seen);
    int64_t n_pieces = 0, longest[SDS_MAX_RANK] = {0}, n_seen = 0;
    sds_tile_walk walk;
    sds_tile_piece piece;
    sds_tile_walk_init(&walk, candidate, slab);
    for (; sds_tile_walk_next(&walk, &piece); n_pieces++) {
        for (int32_t axis = 0; axis < slab->rank; axis++)
            if (piece.shape[axis] > longest[axis]) longest[axis] = piece.shape[axis];
        if (piece.place < 0)
            CHECK(!expected.held);
        else
            check_piece(of, slab, &piece, &expected, seen);
    }
    for (int64_t i = 0; i < expected.n_elements; i++)
        n_seen += seen[i];
    CHECK(n_seen == expected.n_elements || !expected.held);
    CHECK(!sds_tile_walk_next(&walk, &piece));

    sds_tile_piece greatest;
    CHECK(sds_tile_pieces(candidate, slab, &greatest) == n_pieces);
    CHECK(!is_few || sds_tile_pieces(candidate, slab, NULL) == n_pieces);
    CHECK(n_pieces >= expected.n_tiles && greatest.place == -1);
    int64_t shape[SDS_MAX_RANK];
    sds_hyperslab_shape(&greatest.slab, shape);
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        CHECK(greatest.shape[axis] == longest[axis]);
        CHECK(shape[axis] == longest[of->order[axis]]);
    }
    sds_array array;
    sds_runs runs;
    sds_tile_array(candidate, &of->dataset, 0, &array);
    CHECK(sds_runs_of(&array, &greatest.slab, &runs) == SDS_OK);
}

static void test_pieces_are_the_selection(void)
{
    static subject of;
    uint64_t state = 11;
    int n_held = 0;
    for (int round = 0; round < 30000; round++) {
        make(&of, &state, (int32_t)random_between(&state, 1, 5), round % 3 == 0 ? 500 : 1000);
        for (int read = 0; read < 3; read++) {
            sds_hyperslab slab;
            select_any(&slab, &of, &state);
            check_read(&of, &slab);
            n_held += sds_tiles_hold(&of.candidate, &slab);
        }
    }
    CHECK(n_held > 10000 && n_held < 80000);
}

/* Only what the region holds is looked up: a table's region is the box around its tiles. */
static void test_what_lies_outside_of_the_region_is_not_held(void)
{
    static subject of;
    uint64_t state = 3;
    make(&of, &state, 2, 1000);
    sds_hyperslab slab = {.rank = 2,
                          .start = {of.extent[0] - 1, of.extent[1] - 1},
                          .stride = {1, 1},
                          .count = {1, 1},
                          .block = {1, 1}};
    CHECK(sds_candidate_holds(&of.candidate, &slab));
    CHECK(sds_candidate_is_partial(&of.candidate, &of.dataset));
    slab.count[1] = 2;
    CHECK(!sds_candidate_holds(&of.candidate, &slab));
    slab.count[1] = 0;
    CHECK(!sds_tiles_hold(&of.candidate, &slab) &&
          sds_tiles_touched(&of.candidate.tiles, &slab) == 0);
    sds_tile_walk walk;
    sds_tile_piece piece;
    sds_tile_walk_init(&walk, &of.candidate, &slab);
    CHECK(!sds_tile_walk_next(&walk, &piece));
}

/* A source of 2^60 elements in tiles of one: what touches many is told without listing it. */
static void test_large_numbers(void)
{
    const int64_t extent[3] = {INT64_C(1) << 20, INT64_C(1) << 20, INT64_C(1) << 20};
    const int64_t shape[3] = {1, 1, 1}, zeros[3] = {0};
    const int64_t last = (INT64_C(1) << 60) - 1;
    const int64_t number[2] = {last - 1, last};
    const uint32_t place[2] = {1, 0}, end[2] = {1, 2};
    const int32_t order[3] = {2, 1, 0};
    const sds_table_dataset dataset = {.rank = 3, .extent = extent, .element_bytes = 8};
    const sds_candidate candidate = {.rank = 3,
                                     .order = order,
                                     .data_offset_bytes = 64,
                                     .region_start = zeros,
                                     .region_extent = extent,
                                     .tiles = {.n = 2,
                                               .n_segments = 2,
                                               .extent = extent,
                                               .shape = shape,
                                               .number = number,
                                               .place = place,
                                               .segment_end = end}};
    sds_hyperslab slab = {.rank = 3, .stride = {1, 1, 1}, .block = {1, 1, 1}};
    memcpy(slab.count, extent, sizeof extent);
    CHECK(sds_tiles_touched(&candidate.tiles, &slab) == SDS_MAX_TILES_OF_READ + 1);
    CHECK(!sds_candidate_holds(&candidate, &slab));
    slab.count[0] = slab.count[1] = 1, slab.count[2] = SDS_MAX_TILES_OF_READ;
    CHECK(sds_tiles_touched(&candidate.tiles, &slab) == SDS_MAX_TILES_OF_READ);
    slab.stride[2] = 1000;
    CHECK(sds_tiles_touched(&candidate.tiles, &slab) == SDS_MAX_TILES_OF_READ);
    slab.count[2]++;
    CHECK(sds_tiles_touched(&candidate.tiles, &slab) == SDS_MAX_TILES_OF_READ + 1);
    slab.start[0] = slab.start[1] = extent[0] - 1, slab.start[2] = extent[2] - 2;
    slab.count[2] = 2, slab.stride[2] = 1;
    CHECK(sds_candidate_holds(&candidate, &slab));
    sds_tile_walk walk;
    sds_tile_piece piece;
    sds_array array;
    sds_tile_walk_init(&walk, &candidate, &slab);
    CHECK(sds_tile_walk_next(&walk, &piece) == 1 && piece.place == 1);
    sds_tile_array(&candidate, &dataset, piece.place, &array);
    CHECK(array.offset_bytes == 72 && array.extent[0] == 1);
    CHECK(sds_tile_walk_next(&walk, &piece) == 1 && piece.place == 0 && piece.at[2] == 1);
    CHECK(sds_candidate_bytes(&candidate, &dataset) == 16);
    slab.start[2]--;
    CHECK(!sds_candidate_holds(&candidate, &slab));
}

/* The last tile of the longest axis that there may be ends behind the greatest number. */
static void test_a_tile_that_ends_behind_all_numbers(void)
{
    const int64_t extent[1] = {INT64_MAX}, zero[1] = {0}, shape[1] = {INT64_C(1) << 62};
    const int64_t number[1] = {1};
    const uint32_t place[1] = {0}, end[1] = {1};
    const int32_t order[1] = {0};
    const sds_candidate candidate = {.rank = 1,
                                     .order = order,
                                     .region_start = zero,
                                     .region_extent = extent,
                                     .tiles = {.n = 1,
                                               .n_segments = 1,
                                               .extent = extent,
                                               .shape = shape,
                                               .number = number,
                                               .place = place,
                                               .segment_end = end}};
    const sds_hyperslab slab = {
        .rank = 1, .start = {INT64_MAX - 7}, .stride = {3}, .count = {3}, .block = {1}};
    CHECK(sds_candidate_holds(&candidate, &slab));
    sds_tile_walk walk;
    sds_tile_piece piece;
    sds_tile_walk_init(&walk, &candidate, &slab);
    CHECK(sds_tile_walk_next(&walk, &piece) == 1 && piece.place == 0);
    CHECK(piece.slab.start[0] == (INT64_C(1) << 62) - 8 && piece.slab.count[0] == 3);
    CHECK(!sds_tile_walk_next(&walk, &piece));
}

static void test_segments_are_where_they_end(void)
{
    const int64_t extent[2] = {100, 7}, shape[2] = {10, 7};
    const uint32_t end[3] = {2, 3, 8};
    const sds_table_dataset dataset = {.rank = 2, .extent = extent, .element_bytes = 2};
    const sds_candidate candidate = {
        .rank = 2,
        .data_offset_bytes = 512,
        .tiles = {.n = 8, .n_segments = 3, .extent = extent, .shape = shape, .segment_end = end}};
    const int32_t expected[8] = {0, 0, 1, 2, 2, 2, 2, 2};
    for (int32_t place = 0; place < 8; place++)
        CHECK(sds_segment_of(&candidate.tiles, place) == expected[place]);
    sds_extent bytes = sds_segment_bytes(&candidate, &dataset, 0);
    CHECK(bytes.offset == 512 && bytes.length == 280);
    bytes = sds_segment_bytes(&candidate, &dataset, 2);
    CHECK(bytes.offset == 512 + 3 * 140 && bytes.length == 700);
}

int main(void)
{
    test_pieces_are_the_selection();
    test_what_lies_outside_of_the_region_is_not_held();
    test_large_numbers();
    test_a_tile_that_ends_behind_all_numbers();
    test_segments_are_where_they_end();
    return 0;
}
