/* Times of short operations, from the processor's own counter where it may be trusted.
 *
 * A call of clock_gettime costs some 25 ns; with one before a read, one after it and one for the
 * date, HDF5's smallest reads would take a sixth longer. The counter (x86-64: TSC) costs 7 ns, and
 * the clocks are asked at most once a second, to turn ticks into time. Where the counter may not
 * be trusted, ticks are nanoseconds of CLOCK_MONOTONIC. So they are at first: to find out takes
 * some 60 us, which a process that reads little does not win back.
 *
 * It is trusted where the processor says that it runs at one rate in all states, Linux itself
 * takes the time from it (Linux tests at boot that the counters of all processors agree, and
 * watches them), and it stays in step with CLOCK_MONOTONIC: a clock that finds it out of step (the
 * machine was suspended, or moved to another host) never uses it again. The counter is read
 * without waiting for the instructions before it: a span is exact to some tens of nanoseconds. */
#ifndef SDS_TICK_CLOCK_H
#define SDS_TICK_CLOCK_H

#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One moment, by every clock. */
typedef struct sds_tick_sample {
    uint64_t ticks;
    int64_t monotonic_ns;
    int64_t realtime_ns;
} sds_tick_sample;

typedef struct sds_tick_clock {
    int32_t counts;         /* 1: ticks are the counter's; 0: nanoseconds. Read from any thread */
    int32_t is_chosen;      /* it was found out whether the counter may be trusted */
    sds_tick_sample anchor; /* ticks are turned into time from here on */
    uint64_t ns_per_tick;   /* 32 bits behind the point; 0: not known yet */
    uint64_t due_ticks;     /* after the anchor: then the clocks are asked again */
    sds_tick_sample base;   /* the rate is that between here and the anchor */
} sds_tick_clock;

/* From when to when something took, in ticks. */
typedef struct sds_tick_span {
    uint64_t begin;
    uint64_t end;
    int32_t counts; /* of the clock when it began */
} sds_tick_span;

void sds_tick_clock_init(sds_tick_clock *clock);
/* Count by the processor from now on, if it may be trusted. Once; spans that began before end in
 * nanoseconds. By one thread at a time. */
void sds_tick_clock_use_counter(sds_tick_clock *clock);
/* In the child after fork, where another thread of the parent may have been using it. */
void sds_tick_clock_renew(sds_tick_clock *clock);

static inline int64_t sds_tick_clock_ns(const sds_tick_clock *clock, uint64_t ticks)
{
    return (int64_t)((__int128)(int64_t)ticks * (__int128)clock->ns_per_tick >> 32);
}

static inline void sds_tick_clock_scale(const sds_tick_clock *clock, const sds_tick_span *span,
                                        int64_t *start_ns, int64_t *elapsed_ns)
{
    *start_ns =
        clock->anchor.realtime_ns + sds_tick_clock_ns(clock, span->begin - clock->anchor.ticks);
    *elapsed_ns = sds_tick_clock_ns(clock, span->end - span->begin);
}

/* Spans of other threads may have ended before the anchor; not so long before it, unless the
 * counter has jumped. */
static inline int sds_tick_clock_is_due(const sds_tick_clock *clock, const sds_tick_span *span)
{
    const uint64_t since = span->end - clock->anchor.ticks;
    return since + clock->due_ticks >= 2 * clock->due_ticks;
}

/* The same as below where the clocks need not be asked; else 0. */
static inline int sds_tick_clock_try(const sds_tick_clock *clock, const sds_tick_span *span,
                                     int64_t *start_ns, int64_t *elapsed_ns)
{
    if (span->counts != clock->counts || sds_tick_clock_is_due(clock, span)) return 0;
    sds_tick_clock_scale(clock, span, start_ns, elapsed_ns);
    return 1;
}

/* When a span began (CLOCK_REALTIME), and how long it was. By one thread at a time. */
void sds_tick_clock_convert(sds_tick_clock *clock, const sds_tick_span *span, int64_t *start_ns,
                            int64_t *elapsed_ns);

static inline uint64_t sds_ticks(int32_t counts)
{
#if defined(__x86_64__)
    if (__builtin_expect(counts, 1)) return __rdtsc();
#else
    (void)counts;
#endif
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline sds_tick_span sds_tick_span_begin(const sds_tick_clock *clock)
{
    sds_tick_span span;
    span.counts = __atomic_load_n(&clock->counts, __ATOMIC_RELAXED);
    span.begin = span.end = sds_ticks(span.counts);
    return span;
}

static inline void sds_tick_span_end(sds_tick_span *span)
{
    span->end = sds_ticks(span->counts);
}

#ifdef __cplusplus
}
#endif
#endif
