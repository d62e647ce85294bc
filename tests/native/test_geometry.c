#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sds/geometry.h"

#define MAX_BYTES 40000
#define MAX_POSITIONS (1 << 17)

static uint8_t selected[MAX_BYTES];

/* What a walk over every byte finds. */
typedef struct truth {
    int64_t runs, useful, depth, gap_count, gap_distance, requests, osts, disks;
} truth;

/* Mark the bytes of a selection, element by element; return the end of the last. */
static int64_t select_bytes(const sds_array *array, const sds_hyperslab *slab)
{
    int64_t total = 1, end = 0;
    memset(selected, 0, sizeof selected);
    for (int32_t axis = 0; axis < array->rank; axis++)
        total *= array->extent[axis];
    for (int64_t element = 0; element < total; element++) {
        int64_t rest = element;
        int inside = 1;
        for (int32_t axis = array->rank - 1; axis >= 0; axis--) {
            const int64_t at = rest % array->extent[axis] - slab->start[axis];
            rest /= array->extent[axis];
            const int64_t step = slab->count[axis] > 1 ? slab->stride[axis] : INT64_MAX;
            if (at < 0 || at / step >= slab->count[axis] || at % step >= slab->block[axis])
                inside = 0;
        }
        if (!inside) continue;
        const int64_t begin = array->offset_bytes + element * array->element_bytes;
        end = begin + array->element_bytes;
        memset(selected + begin, 1, (size_t)array->element_bytes);
    }
    return end;
}

static void walk_bytes(int64_t end, const sds_striping *striping, const sds_raid *raid, truth *out)
{
    static uint8_t request[MAX_POSITIONS];
    static uint8_t block[MAX_POSITIONS];
    memset(out, 0, sizeof *out);
    for (int64_t byte = 0; byte < end; byte++) {
        out->useful += selected[byte];
        out->runs += selected[byte] && (byte == 0 || !selected[byte - 1]);
    }
    for (int64_t ost = 0; ost < striping->stripe_count; ost++) {
        memset(request, 0, sizeof request);
        memset(block, 0, sizeof block);
        for (int64_t byte = 0; byte < end; byte++) {
            const int64_t stripe = byte / striping->stripe_bytes;
            if (!selected[byte] || stripe % striping->stripe_count != ost) continue;
            const int64_t object = stripe / striping->stripe_count * striping->stripe_bytes +
                                   byte % striping->stripe_bytes;
            request[object / raid->min_request_bytes] = 1;
        }
        int64_t requests = 0;
        for (int64_t i = 0; i < MAX_POSITIONS; i++) {
            if (!request[i]) continue;
            requests++;
            for (int64_t b = i * raid->min_request_bytes; b < (i + 1) * raid->min_request_bytes;
                 b++)
                block[b / raid->unit_bytes] = 1;
        }
        out->requests += requests;
        out->osts += requests > 0;
        for (int64_t disk = 0; disk < raid->data_disks; disk++) {
            int64_t depth = 0, gaps = 0, distance = 0, previous = -1;
            for (int64_t position = 0; position * raid->data_disks + disk < MAX_POSITIONS;
                 position++) {
                if (!block[position * raid->data_disks + disk]) continue;
                if (depth > 0 && position - previous > 1) {
                    gaps++;
                    distance += position - previous - 1;
                }
                depth++;
                previous = position;
            }
            out->disks += depth > 0;
            if (depth > out->depth) out->depth = depth;
            if (gaps > out->gap_count) out->gap_count = gaps;
            if (distance > out->gap_distance) out->gap_distance = distance;
        }
    }
}

static void random_selection(uint64_t *state, sds_array *array, sds_hyperslab *slab)
{
    memset(array, 0, sizeof *array);
    memset(slab, 0, sizeof *slab);
    array->rank = slab->rank = (int32_t)random_between(state, 0, 4);
    array->element_bytes = random_between(state, 1, 12);
    array->offset_bytes = random_u64(state) % 2 ? 0 : random_between(state, 0, 3000);
    int64_t room = (MAX_BYTES - 3000) / array->element_bytes;
    for (int32_t axis = 0; axis < array->rank; axis++) {
        const int64_t most = room < 60 ? room : 60;
        const int64_t extent = random_between(state, 1, most);
        array->extent[axis] = extent;
        room /= extent;
        const int64_t start = random_between(state, 0, extent - 1);
        const int64_t block = random_u64(state) % 2 ? 1 : random_between(state, 1, extent - start);
        const int64_t stride = block + random_between(state, 0, 6);
        slab->start[axis] = start;
        slab->block[axis] = block;
        slab->stride[axis] = stride;
        slab->count[axis] = random_between(state, 1, (extent - start - block) / stride + 1);
    }
}

static void random_storage(uint64_t *state, sds_striping *striping, sds_raid *raid)
{
    striping->stripe_count = random_between(state, 1, 5);
    raid->data_disks = random_between(state, 1, 5);
    if (random_u64(state) % 2) {
        raid->unit_bytes = random_between(state, 1, 90);
        raid->min_request_bytes = random_between(state, 1, 120);
        striping->stripe_bytes = random_between(state, 1, 500);
    } else {
        raid->unit_bytes = INT64_C(1) << random_between(state, 0, 6);
        raid->min_request_bytes = raid->unit_bytes * random_between(state, 1, 8);
        striping->stripe_bytes = raid->min_request_bytes * random_between(state, 1, 8);
    }
}

static void check_bounds(const sds_bounds *bounds, int64_t value, int exact)
{
    CHECK(bounds->low <= value && value <= bounds->high);
    if (exact) CHECK(bounds->low == bounds->high);
}

static void check_features(const sds_features *features, const truth *known, int64_t request)
{
    CHECK(features->runs == known->runs);
    CHECK(features->bytes_useful == known->useful);
    check_bounds(&features->block_depth, known->depth, features->exact);
    check_bounds(&features->block_gap_count, known->gap_count, features->exact);
    check_bounds(&features->block_gap_distance, known->gap_distance, features->exact);
    check_bounds(&features->bytes_touched, known->requests * request, features->exact);
    check_bounds(&features->osts_touched, known->osts, features->exact);
    check_bounds(&features->disks_touched, known->disks, features->exact);
}

static void test_features_equal_a_walk_over_every_byte(void)
{
    uint64_t state = 11;
    static sds_extent extents[MAX_BYTES];
    for (int round = 0; round < 1500; round++) {
        sds_array array;
        sds_hyperslab slab;
        sds_striping striping;
        sds_raid raid;
        random_selection(&state, &array, &slab);
        random_storage(&state, &striping, &raid);
        const int64_t end = select_bytes(&array, &slab);
        truth known;
        walk_bytes(end, &striping, &raid, &known);

        sds_runs runs;
        CHECK(sds_runs_of(&array, &slab, &runs) == SDS_OK);
        CHECK(sds_runs_bytes(&runs) == known.useful);
        CHECK(sds_runs_span(&runs) == (known.useful > 0 ? end - runs.first_offset : 0));
        size_t n = 0;
        int64_t bytes = 0;
        sds_run_cursor cursor;
        sds_run_cursor_init(&cursor, &runs);
        while (sds_run_cursor_next(&cursor, &extents[n])) {
            for (int64_t i = 0; i < extents[n].length; i++)
                CHECK(selected[extents[n].offset + i]);
            bytes += extents[n++].length;
        }
        CHECK((int64_t)n == known.runs && bytes == known.useful);

        sds_features features;
        CHECK(sds_features_of_runs(&runs, &striping, &raid, 0, &features) == SDS_OK);
        CHECK(features.exact);
        check_features(&features, &known, raid.min_request_bytes);
        CHECK(sds_features_of_extents(n, extents, &striping, &raid, 0, &features) == SDS_OK);
        CHECK(features.exact);
        check_features(&features, &known, raid.min_request_bytes);
        /* A budget of one nanosecond is spent at the first look at the clock. */
        CHECK(sds_features_of_runs(&runs, &striping, &raid, 1, &features) == SDS_OK);
        check_features(&features, &known, raid.min_request_bytes);
        CHECK(sds_features_of_extents(n, extents, &striping, &raid, 1, &features) == SDS_OK);
        check_features(&features, &known, raid.min_request_bytes);
    }
}

/* Liu 2014's array: all of it, and one plane across the grain. */
static void test_sizes_do_not_matter(void)
{
    const sds_array array = {3, {1024, 1024, 65536}, 2, 0};
    const sds_striping striping = {1 << 20, 100};
    const sds_raid raid = {512, 8, 4096};
    sds_hyperslab slab = {3, {0}, {1, 1, 1}, {1024, 1024, 65536}, {1, 1, 1}};
    sds_runs runs;
    sds_features features;
    CHECK(sds_runs_of(&array, &slab, &runs) == SDS_OK);
    CHECK(runs.n_levels == 0 && runs.run_bytes == INT64_C(1) << 37);
    CHECK(sds_features_of_runs(&runs, &striping, &raid, 0, &features) == SDS_OK);
    /* 131,072 stripes: 72 OSTs hold 1,311 of them, of 256 rows each. */
    CHECK(features.block_depth.low == 1311 * 256 && features.block_gap_count.high == 0);

    slab.start[2] = 77;
    slab.count[2] = 1;
    CHECK(sds_runs_of(&array, &slab, &runs) == SDS_OK);
    CHECK(sds_runs_count(&runs) == 1 << 20);
    CHECK(sds_features_of_runs(&runs, &striping, &raid, 0, &features) == SDS_OK);
    /* Every 128 KiB one row: 8 in each stripe, 31 untouched rows after each. */
    CHECK(features.exact && features.block_depth.low == 1311 * 8);
    CHECK(features.block_gap_count.low == 1311 * 8 - 1);
    CHECK(features.block_gap_distance.low == (1311 * 8 - 1) * 31);
    CHECK(features.bytes_touched.low == INT64_C(4096) << 20);
}

static void test_offsets_past_64_bits_are_refused(void)
{
    sds_array array = {2, {INT64_C(1) << 40, INT64_C(1) << 40}, 8, 0};
    const sds_hyperslab slab = {2, {0}, {1, 1}, {1, 1}, {1, 1}};
    sds_runs runs;
    CHECK(sds_runs_of(&array, &slab, &runs) == SDS_EOVERFLOW);
    array.extent[1] = 1;
    array.offset_bytes = INT64_MAX - 100;
    CHECK(sds_runs_of(&array, &slab, &runs) == SDS_EOVERFLOW);
    array.extent[0] = 4;
    array.element_bytes = 25;
    CHECK(sds_runs_of(&array, &slab, &runs) == SDS_OK);
    const sds_striping striping = {3, 7};
    const sds_raid raid = {5, 2, INT64_C(1) << 50};
    sds_features features;
    CHECK(sds_features_of_runs(&runs, &striping, &raid, 0, &features) == SDS_OK);
    CHECK(features.osts_touched.low == features.osts_touched.high);
}

static void test_slabs_that_cannot_be_are_refused(void)
{
    const sds_array array = {1, {10}, 4, 0};
    const struct {
        sds_hyperslab slab;
        sds_status status;
    } cases[] = {
        {{1, {0}, {1}, {10}, {1}}, SDS_OK},
        {{1, {0}, {1}, {11}, {1}}, SDS_EBOUNDS},
        {{1, {9}, {1}, {1}, {2}}, SDS_EBOUNDS},
        {{1, {-1}, {1}, {1}, {1}}, SDS_EINVAL},
        {{1, {0}, {0}, {1}, {1}}, SDS_EINVAL},
        {{1, {0}, {2}, {2}, {3}}, SDS_EINVAL},
        {{1, {0}, {INT64_MAX}, {INT64_MAX}, {1}}, SDS_EBOUNDS},
        {{1, {INT64_MAX}, {1}, {1}, {1}}, SDS_EBOUNDS},
        {{1, {50}, {1}, {0}, {1}}, SDS_OK},
        {{2, {0}, {1, 1}, {1, 1}, {1, 1}}, SDS_EINVAL},
        {{-1, {0}, {1}, {1}, {1}}, SDS_EINVAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sds_runs runs;
        CHECK(sds_runs_of(&array, &cases[i].slab, &runs) == cases[i].status);
    }
}

static void test_storage_that_cannot_be_is_refused(void)
{
    const sds_runs runs = {.first_offset = 0, .run_bytes = INT64_C(1) << 40};
    sds_features features;
    const sds_raid raid = {512, 8, 4096};
    CHECK(sds_features_of_runs(&runs, &(sds_striping){0, 1}, &raid, 0, &features) == SDS_EINVAL);
    CHECK(sds_features_of_runs(&runs, &(sds_striping){1, -1}, &raid, 0, &features) == SDS_EINVAL);
    CHECK(sds_features_of_runs(&runs, &(sds_striping){1, 1 << 30}, &raid, 0, &features) ==
          SDS_ELIMIT);
    CHECK(sds_features_of_runs(&runs, &(sds_striping){1, 1}, &(sds_raid){1, INT64_MAX, 1}, 0,
                               &features) == SDS_ELIMIT);
    const sds_extent unsorted[] = {{10, 5}, {12, 5}};
    CHECK(sds_features_of_extents(2, unsorted, &(sds_striping){1024, 1}, &raid, 0, &features) ==
          SDS_EINVAL);
}

static void test_permuting_moves_axes(void)
{
    const sds_hyperslab slab = {3, {1, 2, 3}, {4, 5, 6}, {1, 2, 3}, {1, 1, 2}};
    sds_hyperslab moved;
    CHECK(sds_hyperslab_permute(&slab, (int32_t[]){2, 0, 1}, &moved) == SDS_OK);
    CHECK(moved.start[0] == 3 && moved.stride[1] == 4 && moved.block[0] == 2);
    int64_t shape[3];
    sds_hyperslab_shape(&moved, shape);
    CHECK(shape[0] == 6 && shape[1] == 1 && shape[2] == 2);
    CHECK(sds_hyperslab_permute(&slab, (int32_t[]){0, 0, 1}, &moved) == SDS_EINVAL);
    CHECK(sds_hyperslab_permute(&slab, (int32_t[]){0, 3, 1}, &moved) == SDS_EINVAL);
}

int main(void)
{
    test_features_equal_a_walk_over_every_byte();
    test_sizes_do_not_matter();
    test_offsets_past_64_bits_are_refused();
    test_slabs_that_cannot_be_are_refused();
    test_storage_that_cannot_be_is_refused();
    test_permuting_moves_axes();
    return 0;
}
