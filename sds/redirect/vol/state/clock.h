// Time in nanoseconds.
#pragma once

#include <stdint.h>
#include <time.h>

namespace sds::vol
{

inline int64_t clock_ns(clockid_t clock)
{
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

inline int64_t realtime_ns()
{
    return clock_ns(CLOCK_REALTIME);
}
// To a few milliseconds, at a fraction of the cost.
inline int64_t coarse_monotonic_ns()
{
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}
inline int64_t monotonic_ns()
{
    return clock_ns(CLOCK_MONOTONIC);
}

} // namespace sds::vol
