#include "shadow_share.h"

#include <unistd.h>

#include "clock.h"

namespace sds::vol
{

bool is_in_share(int32_t permille)
{
    static uint32_t n_dealt;
    uint64_t n = __atomic_add_fetch(&n_dealt, 1, __ATOMIC_RELAXED);
    n ^= static_cast<uint64_t>(monotonic_ns()) ^ static_cast<uint64_t>(getpid()) << 40;
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9U; // mixed as by splitmix64
    n = (n ^ n >> 27) * 0x94d049bb133111ebU;
    return static_cast<int32_t>((n ^ n >> 31) % 1000) < permille;
}

} // namespace sds::vol
