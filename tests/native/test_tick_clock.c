#include <time.h>

#include "check.h"
#include "sds/tick_clock.h"

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void wait_ns(int64_t ns)
{
    const int64_t end_ns = clock_ns(CLOCK_MONOTONIC) + ns;
    while (clock_ns(CLOCK_MONOTONIC) < end_ns)
        continue;
}

/* Between readings of the clocks before and after each end of the span, less or more by the part of
 * it that a rate may be off, and by what one look at two clocks takes. */
static void check_span(sds_tick_clock *clock, int64_t length_ns)
{
    const int64_t slack_ns = 2000 + length_ns / 100;
    const int64_t date_ns = clock_ns(CLOCK_REALTIME), outer_ns = clock_ns(CLOCK_MONOTONIC);
    sds_tick_span span = sds_tick_span_begin(clock);
    const int64_t date_after_ns = clock_ns(CLOCK_REALTIME), inner_ns = clock_ns(CLOCK_MONOTONIC);
    wait_ns(length_ns);
    const int64_t inner_end_ns = clock_ns(CLOCK_MONOTONIC);
    sds_tick_span_end(&span);
    const int64_t outer_end_ns = clock_ns(CLOCK_MONOTONIC);
    int64_t start_ns = 0, elapsed_ns = 0;
    sds_tick_clock_convert(clock, &span, &start_ns, &elapsed_ns);
    CHECK(elapsed_ns >= inner_end_ns - inner_ns - slack_ns);
    CHECK(elapsed_ns <= outer_end_ns - outer_ns + slack_ns);
    /* The date may be corrected meanwhile; a hundredth of a second is the most for a slow one. */
    CHECK(start_ns >= date_ns - 10000000);
    CHECK(start_ns <= date_after_ns + 10000000);
}

static void check_spans(sds_tick_clock *clock)
{
    for (int i = 0; i < 200; i++)
        check_span(clock, 1000 + 100 * i);
    check_span(clock, 3000000);
}

static void test_spans_are_those_of_the_system_clocks(void)
{
    sds_tick_clock clock;
    sds_tick_clock_init(&clock);
    CHECK(!clock.counts);
    check_spans(&clock);
    sds_tick_clock_use_counter(&clock);
    check_spans(&clock);
    sds_tick_clock_renew(&clock);
    check_spans(&clock);
}

static void test_a_span_that_began_before_counting_did(void)
{
    sds_tick_clock clock;
    sds_tick_clock_init(&clock);
    const int64_t date_ns = clock_ns(CLOCK_REALTIME), begun_ns = clock_ns(CLOCK_MONOTONIC);
    sds_tick_span span = sds_tick_span_begin(&clock);
    sds_tick_clock_use_counter(&clock);
    wait_ns(100000);
    sds_tick_span_end(&span);
    int64_t start_ns = 0, elapsed_ns = 0;
    sds_tick_clock_convert(&clock, &span, &start_ns, &elapsed_ns);
    CHECK(elapsed_ns >= 100000 && elapsed_ns <= clock_ns(CLOCK_MONOTONIC) - begun_ns);
    CHECK(start_ns >= date_ns - 10000000 && start_ns <= date_ns + 10000000);
}

static void test_without_a_counter_too(void)
{
    sds_tick_clock clock;
    sds_tick_clock_init(&clock);
    clock.counts = 0;
    sds_tick_clock_renew(&clock);
    check_spans(&clock);
    CHECK(!clock.counts);
}

static void test_a_counter_out_of_step_is_never_used_again(void)
{
    sds_tick_clock clock;
    sds_tick_clock_init(&clock);
    sds_tick_clock_use_counter(&clock);
    if (!clock.counts) return;
    check_span(&clock, 3000000);
    check_span(&clock, 3000000);
    CHECK(clock.counts);
    /* As if it had run at twice its rate so far, and is due to be looked at. */
    clock.ns_per_tick /= 2;
    clock.due_ticks = 0;
    sds_tick_span span = sds_tick_span_begin(&clock);
    sds_tick_span_end(&span);
    const int64_t before_ns = clock_ns(CLOCK_REALTIME);
    int64_t start_ns = 0, elapsed_ns = -1;
    sds_tick_clock_convert(&clock, &span, &start_ns, &elapsed_ns);
    CHECK(!clock.counts);
    CHECK(elapsed_ns == 0);
    CHECK(start_ns >= before_ns && start_ns <= clock_ns(CLOCK_REALTIME));
    check_spans(&clock);
}

static void test_a_counter_that_jumped_back_is_noticed(void)
{
    sds_tick_clock clock;
    sds_tick_clock_init(&clock);
    sds_tick_clock_use_counter(&clock);
    if (!clock.counts) return;
    check_span(&clock, 3000000);
    clock.anchor.ticks += UINT64_C(1) << 40;
    clock.base.ticks += UINT64_C(1) << 40;
    sds_tick_span span = sds_tick_span_begin(&clock);
    sds_tick_span_end(&span);
    int64_t start_ns, elapsed_ns;
    sds_tick_clock_convert(&clock, &span, &start_ns, &elapsed_ns);
    CHECK(!clock.counts);
    check_spans(&clock);
}

int main(void)
{
    test_spans_are_those_of_the_system_clocks();
    test_a_span_that_began_before_counting_did();
    test_without_a_counter_too();
    test_a_counter_out_of_step_is_never_used_again();
    test_a_counter_that_jumped_back_is_noticed();
    return 0;
}
