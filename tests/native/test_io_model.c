/* Chen 2014 in figures, and the laws of the model. */
#include "sds/io_model.h"

#include <math.h>

#include "check.h"

static int is_near(double value, double expected, double tolerance)
{
    return fabs(value - expected) <= tolerance * expected;
}

static void test_break_even_holes_of_the_paper(void)
{
    sds_pmd_costs reads, writes;
    sds_pmd_costs_chen2014(&reads, &writes);
    CHECK(is_near(sds_pmd_break_even_bytes(&reads, 1, 1), 0.0405e6, 1e-9));
    CHECK(is_near(sds_pmd_break_even_bytes(&writes, 1, 1), 0.0429e6, 1e-9));
    CHECK(is_near(sds_pmd_break_even_bytes(&reads, 16, 16), 9.288e6, 1e-9));
    CHECK(is_near(sds_pmd_break_even_bytes(&reads, 1, 16), 0.648e6, 1e-9));
}

/* T = te*p + tt*size/n + p*s + size*cud/n + lqdep */
static void test_time_is_the_sum_of_its_terms(void)
{
    const sds_pmd_costs costs = {1, 3, 5, 7, 11};
    CHECK(sds_pmd_time_s(&costs, 2, 4, 100) == 1 * 2 + 3 * 100 / 4.0 + 2 * 5 + 100 * 7 / 4.0 + 11);
    CHECK(sds_pmd_time_s(&costs, 2, 4, 0) == 2 + 10 + 11);
}

static sds_pmd_costs random_costs(uint64_t *state)
{
    double cost[5];
    for (int i = 0; i < 5; i++)
        cost[i] = (double)random_between(state, 1, 1000000) * (i == 1 || i == 3 ? 1e-12 : 1e-9);
    return (sds_pmd_costs){cost[0], cost[1], cost[2], cost[3], cost[4]};
}

/* Algorithm 1 says yes exactly where one request over the hole is faster than two. */
static void test_merging_is_what_makes_two_requests_faster(void)
{
    uint64_t state = 5;
    for (int round = 0; round < 100000; round++) {
        const sds_pmd_costs costs = random_costs(&state);
        const double p = (double)random_between(&state, 1, 64);
        const double n = (double)random_between(&state, 1, 64);
        const double break_even = sds_pmd_break_even_bytes(&costs, p, n);
        const int64_t hole = random_between(&state, 0, (int64_t)(2 * break_even) + 1);
        if (fabs((double)hole - break_even) < 1e-6 * break_even) continue;
        const double first = (double)random_between(&state, 1, 1 << 20);
        const double second = (double)random_between(&state, 1, 1 << 20);
        const double apart =
            sds_pmd_time_s(&costs, p, n, first) + sds_pmd_time_s(&costs, p, n, second);
        const double together = sds_pmd_time_s(&costs, p, n, first + (double)hole + second);
        if (fabs(apart - together) > 1e-9 * apart)
            CHECK(sds_pmd_merges(&costs, p, n, hole) == (together < apart));
    }
}

/* The sweeps of Sec. 4.3. With more clients every request costs more and a hole does not: the
 * break-even grows with p. A hole is read from all nodes: it grows as n does. */
static void test_sweeps_over_clients_and_nodes(void)
{
    sds_pmd_costs reads, writes;
    sds_pmd_costs_chen2014(&reads, &writes);
    double before = 0;
    for (double p = 1; p <= 16; p *= 2) {
        const double hole = sds_pmd_break_even_bytes(&reads, p, 16);
        CHECK(hole > before && is_near(hole, (0.0006 * p + 75e-6) * 16 * 60e6, 1e-9));
        CHECK(sds_pmd_time_s(&reads, p, 16, 1e6) < sds_pmd_time_s(&reads, 2 * p, 16, 1e6));
        before = hole;
    }
    for (double n = 1; n <= 16; n++) {
        const double hole = sds_pmd_break_even_bytes(&reads, 16, n);
        CHECK(is_near(hole, n * sds_pmd_break_even_bytes(&reads, 16, 1), 1e-9));
        CHECK(sds_pmd_time_s(&reads, 16, n, 1e6) > sds_pmd_time_s(&reads, 16, n + 1, 1e6));
    }
}

static void test_largest_hole_is_below_the_break_even(void)
{
    const sds_pmd_costs even = {0, 0, 100, 1, 0}, odd = {0, 0, 100.5, 1, 0};
    const sds_pmd_costs free_bytes = {0, 0, 1, 0, 0}, free_requests = {0, 0, 0, 1, 0};
    CHECK(sds_pmd_max_hole(&even, 1, 1) == 99 && sds_pmd_max_hole(&odd, 1, 1) == 100);
    CHECK(!sds_pmd_merges(&even, 1, 1, 100) && sds_pmd_merges(&even, 1, 1, 99));
    CHECK(sds_pmd_max_hole(&free_bytes, 1, 1) == INT64_MAX);
    CHECK(sds_pmd_max_hole(&free_requests, 1, 1) == -1);
}

static void test_two_to_one_rule(void)
{
    CHECK(!sds_ratio_rule_sieves(200, 100) && sds_ratio_rule_sieves(201, 100));
    CHECK(!sds_ratio_rule_sieves(199, 100) && sds_ratio_rule_sieves(1, 0));
    CHECK(!sds_ratio_rule_sieves(0, 0) && !sds_ratio_rule_sieves(INT64_MAX, INT64_MAX));
    CHECK(sds_ratio_rule_sieves(INT64_MAX, INT64_MAX / 2) &&
          !sds_ratio_rule_sieves(INT64_MAX - 1, INT64_MAX / 2));
}

static void test_what_no_cost_can_be(void)
{
    sds_io_parameters good, bad;
    sds_io_parameters_builtin(&good);
    CHECK(sds_io_parameters_are_valid(&good) && !good.is_measured);
    double *const costs[] = {&bad.reads.te_s,      &bad.writes.lqdep_s, &bad.queued_startup_s,
                             &bad.copy_s_per_byte, &bad.load_s,         &bad.loaded_s_per_byte};
    for (unsigned i = 0; i < sizeof costs / sizeof *costs; i++) {
        const double wrong[] = {-1e-9, NAN, INFINITY};
        for (int k = 0; k < 3; k++) {
            bad = good;
            *costs[i] = wrong[k];
            CHECK(!sds_io_parameters_are_valid(&bad));
        }
    }
    bad = good;
    bad.clients = 0;
    CHECK(!sds_io_parameters_are_valid(&bad));
    bad = good;
    bad.queue_depth = 0;
    CHECK(!sds_io_parameters_are_valid(&bad));
}

int main(void)
{
    test_break_even_holes_of_the_paper();
    test_time_is_the_sum_of_its_terms();
    test_merging_is_what_makes_two_requests_faster();
    test_sweeps_over_clients_and_nodes();
    test_largest_hole_is_below_the_break_even();
    test_two_to_one_rule();
    test_what_no_cost_can_be();
    return 0;
}
