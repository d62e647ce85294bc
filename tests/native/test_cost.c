#include <math.h>

#include "check.h"
#include "sds/cost.h"

static const sds_features features = {
    .runs = 10,
    .bytes_useful = 100,
    .block_depth = {2, 3},
    .block_gap_count = {1, 5},
    .block_gap_distance = {1, 7},
    .bytes_touched = {4096, 40960},
};

static void test_each_equation_has_its_terms(void)
{
    const double bd = 3, bg = 5, p = 4;
    const double terms[] = {1, bd, bg, p, bd * bg, bd * p, bg * p, bd * bg * p};
    const struct {
        int32_t kind;
        int n;
    } kinds[] = {{SDS_MODEL_EQ3, 3}, {SDS_MODEL_EQ4, 4}, {SDS_MODEL_EQ6, 8}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int i = 0; i < SDS_MODEL_TERMS; i++) {
            sds_cost_model model = {.kind = kinds[k].kind, .gap = SDS_GAP_COUNT};
            model.coefficient[i] = 1;
            const double expected = i < kinds[k].n ? terms[i] : 0;
            CHECK(sds_cost_predict(&model, &features, 9, p) == expected);
        }
    }
}

static void test_each_gap_is_its_own(void)
{
    sds_cost_model model = {.kind = SDS_MODEL_EQ3, .coefficient = {0, 0, 1}};
    const double gaps[] = {5, 7, 9};
    for (int32_t gap = SDS_GAP_COUNT; gap <= SDS_GAP_PAPER; gap++) {
        model.gap = gap;
        CHECK(sds_cost_predict(&model, &features, 9, 1) == gaps[gap]);
    }
}

static void test_builtin_counts_pages_where_runs_share_them(void)
{
    sds_cost_model model;
    sds_cost_builtin(&model);
    CHECK(!model.calibrated && model.n_terms == 3);
    sds_features dense = features;
    dense.runs = 1000000;
    const double few = sds_cost_predict(&model, &features, 0, 1);
    CHECK(sds_cost_predict(&model, &dense, 0, 1) == few);
    dense.bytes_touched.high *= 2;
    CHECK(sds_cost_predict(&model, &dense, 0, 1) > few);
}

static void test_nothing_is_below_the_floor(void)
{
    sds_cost_model model = {.kind = SDS_MODEL_EQ3, .floor_s = 0.5, .coefficient = {-1, 0, 0}};
    CHECK(sds_cost_predict(&model, &features, 0, 1) == 0.5);
    model.coefficient[0] = NAN;
    CHECK(sds_cost_predict(&model, &features, 0, 1) == 0.5);
}

static void test_collective_reads_take_both_phases(void)
{
    const sds_model_inputs inputs = {.block_depth = 3,
                                     .block_gap_count = 5,
                                     .processes_per_ost = 4,
                                     .n_processes = 1024,
                                     .n_aggregators = 16,
                                     .bytes_useful = 1600};
    const double terms[] = {1, 3, 5, 4, 1, 1024, 16, 100};
    for (int i = 0; i < SDS_MODEL_TERMS; i++) {
        sds_cost_model model = {.kind = SDS_MODEL_EQ5, .gap = SDS_GAP_COUNT};
        model.coefficient[i] = 1;
        CHECK(sds_cost_of(&model, &inputs) == terms[i]);
    }
}

static void test_reads_through_hdf5_take_what_it_asks_for(void)
{
    const sds_model_inputs inputs = {.sieve_requests = 7,
                                     .sieve_jumps = 3,
                                     .sieve_bytes = 65536,
                                     .runs_most = 100,
                                     .processes_per_ost = 2};
    const double terms[] = {1, 7, 3, 65536, 100, 14, 6, 131072};
    for (int i = 0; i < SDS_MODEL_TERMS; i++) {
        sds_cost_model model = {.kind = SDS_MODEL_SIEVE};
        model.coefficient[i] = 1;
        CHECK(sds_cost_of(&model, &inputs) == terms[i]);
    }
    /* Features from before HDF5's requests were counted: one per run. */
    const sds_features uncounted = {.runs = 9, .bytes_touched = {4096, 8192}};
    sds_cost_model model = {.kind = SDS_MODEL_SIEVE, .coefficient = {0, 1}};
    CHECK(sds_cost_predict(&model, &uncounted, 0, 1) == 9);
    model = (sds_cost_model){.kind = SDS_MODEL_SIEVE, .coefficient = {0, 0, 0, 1}};
    CHECK(sds_cost_predict(&model, &uncounted, 0, 1) == 8192);
}

static void test_gaps_are_sought_over_or_read_through(void)
{
    const sds_model_inputs inputs = {.first_visits = 2,
                                     .runs_most = 10,
                                     .trips_most = 7,
                                     .step_bytes = 5,
                                     .ost_bytes = 4096,
                                     .later_fetches = 3,
                                     .fetch_distance = 8,
                                     .disk_segments = 4,
                                     .disk_blocks = 6,
                                     .disk_distance = 9};
    /* Without a time to seek, or to read a block, no gap takes any. */
    const double alone[] = {2, 10, 7, 5, 4096, 0, 6};
    for (int i = 0; i < sds_model_terms(SDS_MODEL_SERVICE); i++) {
        sds_cost_model model = {.kind = SDS_MODEL_SERVICE};
        model.coefficient[i] = 1;
        CHECK(sds_cost_of(&model, &inputs) == alone[i]);
    }
    sds_cost_model model = {.kind = SDS_MODEL_SERVICE};
    model.coefficient[6] = 1;
    model.coefficient[5] = 0.5; /* 3 and 4 seeks are less than 8 and 9 blocks */
    CHECK(sds_cost_of(&model, &inputs) == 6 + 1.5 + 2);
    model.coefficient[5] = 2.5; /* 3 seeks are less than 8 blocks, 4 more than 9 */
    CHECK(sds_cost_of(&model, &inputs) == 6 + 7.5 + 9);
    model.coefficient[5] = 100;
    CHECK(sds_cost_of(&model, &inputs) == 6 + 8 + 9);
}

static void test_columns_predict_as_one_by_one(void)
{
    enum { N = 5 };
    double column[SDS_N_MODEL_INPUTS][N], seconds[N];
    const double *columns[SDS_N_MODEL_INPUTS];
    sds_model_inputs rows[N];
    for (int m = 0; m < SDS_N_MODEL_INPUTS; m++) {
        columns[m] = column[m];
        for (int i = 0; i < N; i++)
            column[m][i] = ((double *)&rows[i])[m] = 1 + m * 31 % 7 + i * i;
    }
    const int32_t kinds[] = {0, 3, 4, 5, 6, 16};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const sds_cost_model model = {
            .kind = kinds[k], .gap = SDS_GAP_DISTANCE, .coefficient = {1, 2, 3, 4, 5, 6, 7, 8}};
        sds_cost_of_many(&model, N, columns, seconds);
        for (int i = 0; i < N; i++)
            CHECK(seconds[i] == sds_cost_of(&model, &rows[i]));
    }
}

static void test_one_read_stands_for_those_of_its_operation(void)
{
    sds_features read = features;
    read.osts_touched = (sds_bounds){2, 2};
    sds_model_inputs alone, shared;
    sds_model_inputs_of_read(&read, 9, 0.5, &alone);
    CHECK(alone.n_processes == 1 && alone.disk_blocks == 3 && alone.disk_segments == 6);
    CHECK(alone.trips_most == 10); /* never more than runs */
    CHECK(alone.later_fetches == 9 && alone.fetch_distance == 9.0 * 7 / 5);
    CHECK(alone.ost_bytes == 20480 && alone.step_bytes == 40960 && alone.first_visits == 1);
    sds_model_inputs_of_read(&read, 9, 4, &shared); /* eight processes at two OSTs */
    CHECK(shared.n_processes == 8 && shared.disk_blocks == 24 && shared.ost_bytes == 163840);
    CHECK(shared.runs_most == alone.runs_most && shared.block_depth == alone.block_depth);
    sds_model_inputs nothing;
    sds_model_inputs_of_read(&(sds_features){0}, 0, 1, &nothing);
    CHECK(nothing.trips_most == 0 && nothing.later_fetches == 0 && nothing.fetch_distance == 0);
    CHECK(nothing.first_visits == 0 && nothing.disk_blocks == 0 && nothing.ost_bytes == 0);
}

static void test_every_kind_says_how_many_terms_it_has(void)
{
    double terms[SDS_MODEL_TERMS];
    const sds_model_inputs inputs = {0};
    for (int32_t kind = -1; kind < 20; kind++) {
        const int32_t n = sds_model_terms(kind);
        CHECK(n >= 0 && n <= SDS_MODEL_TERMS);
        if (n > 0) CHECK(sds_cost_terms(kind, SDS_GAP_COUNT, &inputs, terms) == n);
    }
    CHECK(sds_model_terms(1) == 0 && sds_model_terms(7) == 0);
}

/* Whatever a read touches, it takes what the model says that any does. */
static void test_any_read_takes_the_start(void)
{
    sds_cost_model model;
    sds_cost_builtin(&model);
    const sds_features nothing = {0};
    CHECK(sds_cost_start(&model) > 0);
    CHECK(sds_cost_start(&model) == sds_cost_predict(&model, &nothing, 0, 1));
    model.coefficient[0] = -1;
    CHECK(sds_cost_start(&model) == 0);
    const sds_cost_model service = {.kind = SDS_MODEL_SERVICE, .coefficient = {1, 1, 1, 1, 1, 1}};
    CHECK(sds_cost_start(&service) == 0);
}

int main(void)
{
    test_each_equation_has_its_terms();
    test_each_gap_is_its_own();
    test_builtin_counts_pages_where_runs_share_them();
    test_nothing_is_below_the_floor();
    test_collective_reads_take_both_phases();
    test_reads_through_hdf5_take_what_it_asks_for();
    test_gaps_are_sought_over_or_read_through();
    test_columns_predict_as_one_by_one();
    test_one_read_stands_for_those_of_its_operation();
    test_every_kind_says_how_many_terms_it_has();
    test_any_read_takes_the_start();
    return 0;
}
