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

} // namespace sds::vol
