// Tells the compiler which way nearly every call goes, so that it keeps that way together.
#pragma once

namespace sds::vol
{

inline bool mostly(bool condition)
{
    return __builtin_expect(condition, true);
}
inline bool seldom(bool condition)
{
    return __builtin_expect(condition, false);
}

// Of what nearly every call runs through: it lies side by side, apart from all else. Between two
// calls of a program that does other things the processor's nearest caches lose most code, and what
// is fetched once more costs more than what it does.
#define SDS_HOT __attribute__((hot))
#define SDS_COLD __attribute__((cold, noinline))

} // namespace sds::vol
