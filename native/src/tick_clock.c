#include "sds/tick_clock.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define SECOND_NS INT64_C(1000000000)
#define FIRST_WINDOW_NS INT64_C(20000) /* the next are as long as all before, up to a second */
#define COMPARED_NS INT64_C(1000000)   /* a rate over less is too coarse to compare with */
#define TOLERATED 256                  /* a rate may change by a part in so many */
#define ONE_NS (UINT64_C(1) << 32)

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

#if defined(__x86_64__)
/* Linux gives up a counter that does not keep time. kvm-clock is made of it as well. */
static int is_clock_of_linux(void)
{
    char name[32];
    const int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                        O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t n = read(fd, name, sizeof name - 1);
    close(fd);
    name[n > 0 ? n : 0] = '\0';
    return strcmp(name, "tsc\n") == 0 || strcmp(name, "kvm-clock\n") == 0;
}

static int may_count(void)
{
    unsigned a, b, c, d = 0;
    const unsigned invariant = 1U << 8;
    if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & invariant)) return 0;
    /* A process may have been told to keep off: then reading the counter would end it. */
    int allowed = 0;
    if (prctl(PR_GET_TSC, &allowed) != 0 || allowed != PR_TSC_ENABLE) return 0;
    return is_clock_of_linux();
}
#else
static int may_count(void)
{
    return 0;
}
#endif

/* The least of three: between the looks at two clocks the thread may lose the processor. */
static sds_tick_sample sample(int32_t counts)
{
    sds_tick_sample best = {0};
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        const uint64_t before = sds_ticks(counts);
        const int64_t monotonic_ns = clock_ns(CLOCK_MONOTONIC);
        const int64_t realtime_ns = clock_ns(CLOCK_REALTIME);
        const uint64_t width = sds_ticks(counts) - before;
        if (width >= best_width) continue;
        best_width = width;
        best = (sds_tick_sample){before + width / 2, monotonic_ns, realtime_ns};
    }
    return best;
}

static uint64_t ticks_in(const sds_tick_clock *clock, int64_t ns)
{
    return (uint64_t)(((unsigned __int128)ns << 32) / clock->ns_per_tick);
}

static void begin(sds_tick_clock *clock, int32_t counts)
{
    __atomic_store_n(&clock->counts, counts, __ATOMIC_RELAXED);
    clock->anchor = clock->base = sample(counts);
    clock->ns_per_tick = counts ? 0 : ONE_NS;
    clock->due_ticks = counts ? 0 : (uint64_t)SECOND_NS;
}

void sds_tick_clock_init(sds_tick_clock *clock)
{
    clock->is_chosen = 0;
    begin(clock, 0);
}

void sds_tick_clock_use_counter(sds_tick_clock *clock)
{
    if (clock->is_chosen) return;
    clock->is_chosen = 1;
    if (may_count()) begin(clock, 1);
}

void sds_tick_clock_renew(sds_tick_clock *clock)
{
    begin(clock, clock->counts);
}

/* The rate between the base and now; 0 where the counter is out of step. */
static uint64_t rate_until(const sds_tick_clock *clock, const sds_tick_sample *now)
{
    const int64_t window_ns = now->monotonic_ns - clock->base.monotonic_ns;
    const int64_t ticks = (int64_t)(now->ticks - clock->base.ticks);
    if (window_ns <= 0 || ticks <= 0) return 0;
    const uint64_t before = clock->ns_per_tick;
    const uint64_t rate = (uint64_t)(((unsigned __int128)window_ns << 32) / (uint64_t)ticks);
    const uint64_t change = rate > before ? rate - before : before - rate;
    const int64_t compared_ns = clock->anchor.monotonic_ns - clock->base.monotonic_ns;
    return compared_ns >= COMPARED_NS && change > before / TOLERATED ? 0 : rate;
}

/* Ask the clocks. 0: the counter is out of step. */
static int look(sds_tick_clock *clock)
{
    sds_tick_sample now;
    int64_t window_ns;
    do {
        now = sample(clock->counts);
        window_ns = now.monotonic_ns - clock->base.monotonic_ns;
    } while (window_ns >= 0 && window_ns < FIRST_WINDOW_NS);
    if (clock->counts && (clock->ns_per_tick = rate_until(clock, &now)) == 0) return 0;
    clock->anchor = now;
    clock->due_ticks = ticks_in(clock, window_ns < SECOND_NS ? window_ns : SECOND_NS);
    if (window_ns >= SECOND_NS) clock->base = now;
    return 1;
}

void sds_tick_clock_convert(sds_tick_clock *clock, const sds_tick_span *span, int64_t *start_ns,
                            int64_t *elapsed_ns)
{
    if (sds_tick_clock_try(clock, span, start_ns, elapsed_ns)) return;
    if (span->counts == clock->counts && !look(clock)) begin(clock, 0);
    if (span->counts == clock->counts) {
        sds_tick_clock_scale(clock, span, start_ns, elapsed_ns);
        return;
    }
    if (!span->counts) { /* it was under way when counting began */
        *start_ns = clock->anchor.realtime_ns + (int64_t)span->begin - clock->anchor.monotonic_ns;
        *elapsed_ns = (int64_t)(span->end - span->begin);
        return;
    }
    /* It was under way when the counter fell out of step: all that is known is when it ended. */
    *start_ns = clock_ns(CLOCK_REALTIME);
    *elapsed_ns = 0;
}
