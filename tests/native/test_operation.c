/* Operations given as selections against the same given as extents, over files of one and several
 * components: two ways through the core that share only the arithmetic of disks. */
#include <string.h>

#include <time.h>

#include "check.h"
#include "sds/operation.h"

#define PROCESSES 6
#define RANK 3
#define MAX_EXTENTS 200000

static sds_extent extents[MAX_EXTENTS];

typedef struct reads {
    int64_t start[PROCESSES * RANK], stride[PROCESSES * RANK];
    int64_t count[PROCESSES * RANK], block[PROCESSES * RANK];
} reads;

static sds_array random_array(uint64_t *state)
{
    sds_array array = {RANK, {0}, 0, 0};
    for (int axis = 0; axis < RANK; axis++)
        array.extent[axis] = random_between(state, 1, 40);
    array.element_bytes = random_between(state, 1, 24);
    array.offset_bytes = random_between(state, 0, 5000);
    return array;
}

static void random_axis(uint64_t *state, reads *all, int at, int64_t extent)
{
    all->start[at] = random_between(state, 0, extent - 1);
    const int64_t room = extent - all->start[at];
    all->block[at] = random_between(state, 0, room > 4 ? 4 : room);
    all->stride[at] = random_between(state, all->block[at] > 0 ? all->block[at] : 1, 12);
    const int64_t most = all->block[at] == 0 ? 3 : (room - all->block[at]) / all->stride[at] + 1;
    all->count[at] = random_between(state, 0, most);
}

/* Halves of one selection along each axis, or any selections. */
static void random_reads(uint64_t *state, reads *all, const sds_array *array)
{
    const int related = (int)random_between(state, 0, 1);
    for (int process = 0; process < PROCESSES; process++)
        for (int axis = 0; axis < RANK; axis++) {
            const int at = process * RANK + axis;
            if (!related || process == 0) {
                random_axis(state, all, at, array->extent[axis]);
                continue;
            }
            const int before = at - RANK;
            all->stride[at] = all->stride[before];
            all->block[at] = all->block[before];
            all->count[at] = all->count[before];
            all->start[at] = all->start[before];
            const int64_t end = all->start[at] + all->count[at] * all->stride[at] + all->block[at];
            if (axis == process % RANK && end < array->extent[axis])
                all->start[at] += random_between(state, 0, 1) ? 1 : all->stride[at];
        }
}

static size_t list_extents(const sds_array *array, const reads *all, int64_t first[])
{
    size_t n = 0;
    for (int process = 0; process < PROCESSES; process++) {
        first[process] = (int64_t)n;
        sds_hyperslab slab = {.rank = RANK};
        for (int axis = 0; axis < RANK; axis++) {
            slab.start[axis] = all->start[process * RANK + axis];
            slab.stride[axis] = all->stride[process * RANK + axis];
            slab.count[axis] = all->count[process * RANK + axis];
            slab.block[axis] = all->block[process * RANK + axis];
        }
        sds_runs runs;
        sds_run_cursor cursor;
        CHECK(sds_runs_of(array, &slab, &runs) == SDS_OK);
        sds_run_cursor_init(&cursor, &runs);
        while (n < MAX_EXTENTS && sds_run_cursor_next(&cursor, &extents[n]))
            n++;
    }
    first[PROCESSES] = (int64_t)n;
    return n;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void random_storage(uint64_t *state, sds_storage *storage, sds_component components[],
                           int64_t osts[])
{
    const int64_t unit = random_between(state, 1, 600), disks = random_between(state, 1, 5);
    const int64_t request =
        random_between(state, 0, 1) ? unit * disks : random_between(state, 1, 5000);
    storage->raid = (sds_raid){unit, disks, request};
    storage->components = components;
    storage->n_components = (size_t)random_between(state, 1, 3);
    storage->n_osts = 8;
    int64_t begin = 0;
    for (size_t i = 0; i < storage->n_components; i++) {
        const int is_last = i + 1 == storage->n_components;
        const int64_t end = is_last ? INT64_MAX : begin + random_between(state, 1, 60000);
        const int64_t count = random_between(state, 1, 6);
        const int named = storage->n_components > 1 || random_between(state, 0, 1);
        for (int64_t k = 0; k < count; k++)
            osts[(int64_t)i * 6 + k] = random_between(state, 0, 7);
        components[i] = (sds_component){
            begin, end, {random_between(state, 1, 8000), count}, named ? osts + i * 6 : NULL};
        begin = end;
    }
}

static void test_two_ways_agree(void)
{
    uint64_t state = 20260711;
    int64_t seen = 0;
    for (int trial = 0; trial < 4000; trial++) {
        const sds_array array = random_array(&state);
        reads all;
        sds_storage storage;
        sds_component components[3];
        int64_t osts[18], first[PROCESSES + 1];
        random_reads(&state, &all, &array);
        random_storage(&state, &storage, components, osts);
        CHECK(list_extents(&array, &all, first) < MAX_EXTENTS);
        const sds_slabs slabs = {PROCESSES, RANK, all.start, all.stride, all.count, all.block};
        const sds_process_extents listed = {PROCESSES, first, extents};
        for (int mode = SDS_IO_INDEPENDENT; mode <= SDS_IO_COLLECTIVE; mode++) {
            sds_operation_features by_slabs, by_extents;
            sds_ost_loads loads;
            CHECK(sds_operation_of_slabs(&array, &slabs, (sds_io_mode)mode, &storage, 0, &by_slabs,
                                         &loads) == SDS_OK);
            CHECK(sds_operation_of_extents(&listed, (sds_io_mode)mode, &storage, 0, &by_extents,
                                           NULL) == SDS_OK);
            by_slabs.block_gap_paper = -1; /* extents have none */
            CHECK(memcmp(&by_slabs, &by_extents, sizeof by_slabs) == 0);
            int64_t most = 0;
            for (int64_t i = 0; i < loads.n_osts * loads.n_lanes; i++)
                most = loads.blocks[i] > most ? loads.blocks[i] : most;
            CHECK(most == by_slabs.disk_blocks);
            seen += by_slabs.disk_blocks;
            sds_ost_loads_free(&loads);
        }
    }
    CHECK(seen > 0);
}

static void test_what_cannot_be_is_refused(void)
{
    const sds_array array = {1, {1000}, 8, 0};
    const int64_t zero = 0, one = 1, hundred = 100, far = 1001, osts[] = {0, 9};
    const sds_slabs whole = {1, 1, &zero, &one, &hundred, &one};
    const sds_slabs outside = {1, 1, &zero, &one, &far, &one};
    const sds_slabs planar = {1, 2, &zero, &one, &hundred, &one};
    sds_component component = {0, INT64_MAX, {1 << 20, 2}, NULL};
    sds_storage storage = {1, &component, 4, {512, 8, 4096}};
    sds_operation_features found;
    sds_ost_loads loads;
#define OPERATION(slabs)                                                                           \
    sds_operation_of_slabs(&array, slabs, SDS_IO_INDEPENDENT, &storage, 0, &found, &loads)
    CHECK(OPERATION(&whole) == SDS_OK && found.processes == 1);
    sds_ost_loads_free(&loads);
    CHECK(OPERATION(&outside) == SDS_EBOUNDS);
    CHECK(OPERATION(&planar) == SDS_EINVAL);
    component.end = 100; /* bytes in no component */
    CHECK(OPERATION(&whole) == SDS_EINVAL);
    component.end = INT64_MAX;
    component.osts = osts; /* an OST out of range */
    CHECK(OPERATION(&whole) == SDS_EINVAL);
    component.osts = NULL;
    component.striping.stripe_bytes = 0;
    CHECK(OPERATION(&whole) == SDS_EINVAL);
#undef OPERATION
    sds_ost_loads_free(&loads);
}

/* Where the next block in steps would lie past INT64_MAX. */
static void test_steps_up_to_the_end_of_all_offsets(void)
{
    const int64_t step = INT64_C(1) << 62;
    const sds_array array = {1, {step + 1}, 1, 0};
    const int64_t start[] = {0, 5}, stride[] = {step, 1}, count[] = {2, 1}, block[] = {1, 1};
    const sds_slabs slabs = {2, 1, start, stride, count, block};
    sds_component component = {0, INT64_MAX, {1 << 20, 2}, NULL};
    const sds_storage storage = {1, &component, 2, {512, 8, 4096}};
    sds_operation_features found;
    CHECK(sds_operation_of_slabs(&array, &slabs, SDS_IO_COLLECTIVE, &storage, 0, &found, NULL) ==
          SDS_OK);
    CHECK(found.bytes_useful == 3 && found.runs == 3);
}

/* A staircase, of which every step can be united only after the one before. */
static void test_uniting_keeps_to_its_time(void)
{
    enum { STEPS = 30000 };
    static int64_t start[2 * STEPS], count[2 * STEPS], ones[2 * STEPS];
    for (int64_t i = 0; i < STEPS; i++) {
        const int across = i % 2 == 0;
        const int64_t at = (i + 1) / 2;
        start[2 * i] = across ? i / 2 : 0;
        start[2 * i + 1] = across ? 0 : at;
        count[2 * i] = across ? 1 : at;
        count[2 * i + 1] = across ? at + 1 : 1;
        ones[2 * i] = ones[2 * i + 1] = 1;
    }
    const sds_array array = {2, {STEPS, STEPS}, 1, 0};
    const sds_slabs slabs = {STEPS, 2, start, ones, count, ones};
    sds_component component = {0, INT64_MAX, {1 << 20, 2}, NULL};
    const sds_storage storage = {1, &component, 2, {512, 8, 4096}};
    const int64_t begin_ns = now_ns();
    sds_operation_features found;
    CHECK(sds_operation_of_slabs(&array, &slabs, SDS_IO_COLLECTIVE, &storage, 20000000, &found,
                                 NULL) == SDS_ELIMIT);
    CHECK(now_ns() - begin_ns < INT64_C(2000000000));
    /* The same of fewer steps is one square. */
    const sds_slabs few = {99, 2, start, ones, count, ones};
    CHECK(sds_operation_of_slabs(&array, &few, SDS_IO_COLLECTIVE, &storage, 0, &found, NULL) ==
          SDS_OK);
    CHECK(found.bytes_useful == 50 * 50 && found.runs == 50);
}

int main(void)
{
    test_two_ways_agree();
    test_steps_up_to_the_end_of_all_offsets();
    test_uniting_keeps_to_its_time();
    test_what_cannot_be_is_refused();
    return 0;
}
