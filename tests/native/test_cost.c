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

int main(void)
{
    test_each_equation_has_its_terms();
    test_each_gap_is_its_own();
    test_builtin_counts_pages_where_runs_share_them();
    test_nothing_is_below_the_floor();
    return 0;
}
