/* What happens once the time budget of a computation has passed, with a clock that the test sets:
 * this clock_gettime stands before the C library's. */
#include <time.h>

#include "check.h"
#include "sds/geometry.h"

static int64_t now_ns;
static int64_t ns_per_look;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    now->tv_sec = (time_t)(now_ns / 1000000000);
    now->tv_nsec = (long)(now_ns % 1000000000);
    now_ns += ns_per_look;
    return 0;
}

static void check_holds(const sds_bounds *bounds, const sds_bounds *exact)
{
    CHECK(exact->low == exact->high);
    CHECK(bounds->low <= exact->low && exact->low <= bounds->high);
}

/* The time passes during the walk, and yet the bounds can afford to walk all of it again: the way
 * that needs the most sets. */
static void test_bounds_that_walk_everything_again(void)
{
    const sds_array array = {2, {600, 65160}, 4, 2048};
    const sds_hyperslab slab = {2, {0, 51906}, {1, 1}, {600, 1}, {1, 1}};
    const sds_striping striping = {1 << 20, 1};
    const sds_raid raid = {4096, 1, 4096};
    sds_runs runs;
    sds_features exact, bounded;
    CHECK(sds_runs_of(&array, &slab, &runs) == SDS_OK);
    CHECK(sds_features_of_runs(&runs, &striping, &raid, 0, &exact) == SDS_OK && exact.exact);
    now_ns = 1;
    ns_per_look = 1000000000;
    CHECK(sds_features_of_runs(&runs, &striping, &raid, 1000000, &bounded) == SDS_OK);
    CHECK(bounded.runs == 600 && bounded.bytes_useful == 2400);
    check_holds(&bounded.block_depth, &exact.block_depth);
    check_holds(&bounded.block_gap_count, &exact.block_gap_count);
    check_holds(&bounded.block_gap_distance, &exact.block_gap_distance);
    check_holds(&bounded.bytes_touched, &exact.bytes_touched);
}

int main(void)
{
    test_bounds_that_walk_everything_again();
    return 0;
}
