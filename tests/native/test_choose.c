/* The choice of what serves a read, against a walk over all that there is to choose from. */
#include <string.h>

#include "check.h"
#include "sds/choose.h"

#define MAX_CANDIDATES 5

/* A contiguous dataset, replicas of it in several orders, and what of them is in memory. */
typedef struct {
    int64_t extent[SDS_MAX_RANK], zeros[SDS_MAX_RANK];
    int32_t order[MAX_CANDIDATES][SDS_MAX_RANK];
    sds_candidate candidates[MAX_CANDIDATES];
    sds_layouts layouts;
    sds_cache original;
    sds_cache cache[MAX_CANDIDATES];
    int n_probes[MAX_CANDIDATES + 1];
} subject;

static const sds_file_layout one_disk = {{1 << 20, 1}, {4096, 1, 4096}};

static void shuffle(int32_t order[], int32_t rank, uint64_t *state)
{
    for (int32_t axis = 0; axis < rank; axis++) {
        const int64_t other = random_between(state, 0, axis);
        order[axis] = order[other];
        order[other] = axis;
    }
}

static void make(subject *out, uint64_t *state)
{
    memset(out, 0, sizeof *out);
    const int32_t rank = (int32_t)random_between(state, 1, 4);
    sds_table_dataset *dataset = &out->layouts.dataset;
    for (int32_t axis = 0; axis < rank; axis++)
        out->extent[axis] = random_between(state, 1, rank == 1 ? 5000 : 60);
    *dataset = (sds_table_dataset){.rank = rank,
                                   .extent = out->extent,
                                   .element_bytes = random_between(state, 1, 16),
                                   .storage = SDS_TABLE_CONTIGUOUS,
                                   .layout = one_disk};
    sds_cost_builtin(&dataset->model);
    dataset->n_candidates = (int32_t)random_between(state, 0, MAX_CANDIDATES);
    out->layouts.candidates = out->candidates;
    out->original = random_u64(state) % 2 ? SDS_CACHE_WARM : SDS_CACHE_COLD;
    for (int32_t i = 0; i < dataset->n_candidates; i++) {
        shuffle(out->order[i], rank, state);
        out->cache[i] = random_u64(state) % 2 ? SDS_CACHE_WARM : SDS_CACHE_UNKNOWN;
        out->candidates[i] =
            (sds_candidate){.storage = SDS_TABLE_CONTIGUOUS,
                            .data_offset_bytes = sds_replica_data_offset(INT64_MAX),
                            .rank = rank,
                            .order = out->order[i],
                            .region_start = out->zeros,
                            .region_extent = out->extent,
                            .layout = one_disk,
                            .model = dataset->model,
                            .shadow_permille = 1000};
        for (int32_t k = 0; k < SDS_MODEL_TERMS; k++)
            out->candidates[i].model.coefficient[k] *= (double)random_between(state, 1, 8) / 8;
    }
}

static sds_hyperslab select_from(const subject *from, uint64_t *state)
{
    sds_hyperslab slab = {.rank = from->layouts.dataset.rank};
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        const int64_t n = from->extent[axis];
        slab.start[axis] = random_between(state, 0, n - 1);
        const int64_t left = n - slab.start[axis];
        slab.block[axis] = random_u64(state) % 3 ? 1 : random_between(state, 1, left);
        slab.stride[axis] = slab.block[axis] + random_between(state, 0, 3);
        slab.count[axis] =
            random_between(state, 1, (left - slab.block[axis]) / slab.stride[axis] + 1);
    }
    return slab;
}

static sds_cache probe(void *context, int32_t choice)
{
    subject *of = context;
    of->n_probes[choice < 0 ? MAX_CANDIDATES : choice]++;
    return choice < 0 ? of->original : of->cache[choice];
}

/* What HDF5 reads with one request is not the engine's to read, and nothing is probed. */
static void forget_what_is_in_memory(subject *of)
{
    int64_t bytes = of->layouts.dataset.element_bytes;
    for (int32_t axis = 0; axis < of->layouts.dataset.rank; axis++)
        bytes *= of->extent[axis];
    if (bytes > 65536) return;
    of->original = SDS_CACHE_COLD;
    for (int32_t i = 0; i < MAX_CANDIDATES; i++)
        of->cache[i] = SDS_CACHE_COLD;
}

/* What a choice costs where it is known what is in memory. */
static double known_s(const sds_read_cost *cost, sds_cache cache)
{
    return cache == SDS_CACHE_WARM ? cost->warm_s : sds_cold_s(cost);
}

static void check_choice(subject *of, const sds_hyperslab *slab)
{
    sds_read_cost candidates[MAX_CANDIDATES];
    sds_read_costs costs = {.candidate = candidates};
    const sds_choose_given given = {.engine_reads_original = 1, .probe = probe, .context = of};
    const int32_t choice = sds_choose(&of->layouts, slab, &given, &costs);
    for (int32_t i = 0; i <= MAX_CANDIDATES; i++)
        CHECK(of->n_probes[i] <= 1);
    CHECK((costs.hangs_on & SDS_ON_CACHE) || of->n_probes[MAX_CANDIDATES] == 0);
    const sds_choose_given all_cold = {.engine_reads_original = 1};
    const int32_t unprobed = sds_choose(&of->layouts, slab, &all_cold, NULL);
    CHECK(!(costs.hangs_on & SDS_ON_FINDING) == (choice == unprobed));
    if (sds_is_one_run(of->extent, slab)) {
        CHECK(choice == SDS_BY_HDF5);
        return;
    }
    const double original_s = sds_original_s(&costs);
    double least_s = original_s;
    if (of->original == SDS_CACHE_WARM)
        least_s = costs.original == SDS_BY_HDF5 ? costs.by_hdf5.warm_s : costs.by_engine.warm_s;
    int is_original = 1;
    for (int32_t i = 0; i < of->layouts.dataset.n_candidates; i++) {
        CHECK(candidates[i].warm_s <= sds_cold_s(&candidates[i]));
        const double seconds = known_s(&candidates[i], of->cache[i]);
        if (sds_cold_s(&candidates[i]) >= original_s || seconds >= least_s) continue;
        least_s = seconds;
        is_original = 0;
    }
    if (is_original)
        CHECK(choice < 0);
    else
        CHECK(choice >= 0 && known_s(&candidates[choice], of->cache[choice]) <= least_s);
}

static void check_one_run(const subject *of, const sds_hyperslab *slab)
{
    sds_array array = {.rank = slab->rank, .element_bytes = 8};
    sds_runs runs;
    memcpy(array.extent, of->extent, sizeof array.extent);
    CHECK(sds_runs_of(&array, slab, &runs) == SDS_OK);
    CHECK(sds_is_one_run(of->extent, slab) == (sds_runs_count(&runs) == 1));
}

static void check_chunks(const subject *of, const sds_hyperslab *slab, uint64_t *state)
{
    int64_t shape[SDS_MAX_RANK], n = 1;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        shape[axis] = random_between(state, 1, of->extent[axis]);
        int64_t last = -1, on_axis = 0;
        for (int64_t i = 0; i < slab->count[axis]; i++)
            for (int64_t k = 0; k < slab->block[axis]; k++) {
                const int64_t chunk =
                    (slab->start[axis] + i * slab->stride[axis] + k) / shape[axis];
                on_axis += chunk != last;
                last = chunk;
            }
        n *= on_axis;
    }
    CHECK(sds_chunks_touched(shape, slab) == n);
}

/* [:, y, :] lies in one run both in order 1,0,2 and, but for a permutation, in order 1,2,0. */
static void check_equal_predictions(void)
{
    static const int64_t extent[] = {256, 256, 1024}, zeros[3] = {0};
    static const int32_t orders[2][3] = {{1, 2, 0}, {1, 0, 2}};
    sds_candidate candidates[2];
    sds_layouts layouts = {.dataset = {.rank = 3,
                                       .extent = extent,
                                       .element_bytes = 8,
                                       .storage = SDS_TABLE_CONTIGUOUS,
                                       .layout = one_disk,
                                       .n_candidates = 2},
                           .candidates = candidates};
    sds_cost_builtin(&layouts.dataset.model);
    for (int i = 0; i < 2; i++)
        candidates[i] = (sds_candidate){.storage = SDS_TABLE_CONTIGUOUS,
                                        .data_offset_bytes = sds_replica_data_offset(INT64_MAX),
                                        .rank = 3,
                                        .order = orders[i],
                                        .region_start = zeros,
                                        .region_extent = extent,
                                        .layout = one_disk,
                                        .model = layouts.dataset.model};
    const sds_hyperslab slab = {.rank = 3,
                                .start = {0, 7, 0},
                                .stride = {1, 1, 1},
                                .count = {256, 1, 1024},
                                .block = {1, 1, 1}};
    const sds_choose_given given = {0};
    CHECK(sds_choose(&layouts, &slab, &given, NULL) == 1);
}

/* Runs of 8 bytes that lie 128 apart, of a file that HDF5 reads in windows of some size. */
static int32_t choose_with_sieve(int64_t sieve_bytes)
{
    static const int64_t extent[] = {4096, 16};
    sds_layouts layouts = {.dataset = {.rank = 2,
                                       .extent = extent,
                                       .element_bytes = 8,
                                       .storage = SDS_TABLE_CONTIGUOUS,
                                       .layout = one_disk}};
    const sds_hyperslab slab = {.rank = 2, .stride = {1, 1}, .count = {4096, 1}, .block = {1, 1}};
    const sds_choose_given given = {.engine_reads_original = 1, .sieve_bytes = sieve_bytes};
    return sds_choose(&layouts, &slab, &given, NULL);
}

int main(void)
{
    CHECK(choose_with_sieve(1) != SDS_BY_HDF5);
    CHECK(choose_with_sieve(INT64_MAX) == SDS_BY_HDF5);
    static subject of;
    uint64_t state = 20251125;
    check_equal_predictions();
    for (int i = 0; i < 20000; i++) {
        make(&of, &state);
        forget_what_is_in_memory(&of);
        const sds_hyperslab slab = select_from(&of, &state);
        check_one_run(&of, &slab);
        check_chunks(&of, &slab, &state);
        check_choice(&of, &slab);
    }
    return 0;
}
