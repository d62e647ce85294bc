/* Where long computations end that are not done: at a point in time that they look at now and then,
 * or after a number of steps, where the same is to come out each time. Internal. */
#ifndef SDS_DEADLINE_H
#define SDS_DEADLINE_H

#include <stdint.h>
#include <time.h>

/* Reading the clock costs as much as a few additions to a set. */
#define SDS__STEPS_PER_LOOK 64

typedef struct sds__deadline {
    int64_t at_ns;      /* 0: never */
    int64_t most_steps; /* 0: any number */
    int64_t steps;
    int passed;
} sds__deadline;

static inline int64_t sds__now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* budget_ns <= 0: never passes. */
static inline sds__deadline sds__deadline_in(int64_t budget_ns)
{
    sds__deadline deadline = {0, 0, 0, 0};
    if (budget_ns > 0 && __builtin_add_overflow(sds__now_ns(), budget_ns, &deadline.at_ns))
        deadline.at_ns = 0;
    return deadline;
}

static inline sds__deadline sds__deadline_after(int64_t most_steps)
{
    return (sds__deadline){0, most_steps, 0, 0};
}

/* Count a step; return 1 once the time has passed, or the steps are done. */
static inline int sds__deadline_step(sds__deadline *deadline)
{
    deadline->steps++;
    if (deadline->at_ns != 0 && deadline->steps % SDS__STEPS_PER_LOOK == 0 &&
        sds__now_ns() >= deadline->at_ns)
        deadline->passed = 1;
    if (deadline->steps == deadline->most_steps) deadline->passed = 1;
    return deadline->passed;
}

#endif
