#include "memory_budget.h"

#include "chunk_cache.h"
#include "decoding_room.h"
#include "scratch.h"
#include "shared_state.h"

namespace sds::vol
{
namespace
{

constexpr int64_t most_in_reads = most_memory_bytes + (19 << 16);
// Less than the bound, so that not every page more has it given back.
constexpr int64_t most_kept = most_memory_bytes - (256 << 10);

int64_t lasting_bytes = 0;
int64_t all_bytes = 0;
int64_t spare_bytes = 0; // of all

bool add_up_to(int64_t most, int64_t n_bytes, int64_t &sum)
{
    int64_t before = __atomic_load_n(&sum, __ATOMIC_RELAXED);
    do {
        if (before + n_bytes > most) return false;
    } while (!__atomic_compare_exchange_n(&sum, &before, before + n_bytes, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

void drop_what_is_kept()
{
    SharedStateLock lock;
    drop_decoding_buffers();
    drop_cached_boxes();
    drop_kept_scratch();
}

bool take_of_all(int64_t most, int64_t n_bytes)
{
    if (add_up_to(most, n_bytes, all_bytes)) return true;
    drop_what_is_kept();
    return add_up_to(most, n_bytes, all_bytes);
}

} // namespace

bool take_memory(MemoryUse use, int64_t n_bytes)
{
    switch (use) {
    case MemoryUse::passing:
        return take_of_all(most_in_reads, n_bytes);
    case MemoryUse::spare:
        if (!add_up_to(most_in_reads, n_bytes, all_bytes)) return false;
        __atomic_add_fetch(&spare_bytes, n_bytes, __ATOMIC_RELAXED);
        return true;
    case MemoryUse::known:
        return take_of_all(most_memory_bytes, n_bytes);
    case MemoryUse::lasting:
        if (!add_up_to(most_lasting_bytes, n_bytes, lasting_bytes)) return false;
        if (take_of_all(most_memory_bytes, n_bytes)) return true;
        break;
    case MemoryUse::traced:
        // The trace's lock is held: who holds the one of shared_state.h may wait for that.
        if (!add_up_to(most_lasting_bytes, n_bytes, lasting_bytes)) return false;
        if (add_up_to(most_memory_bytes, n_bytes, all_bytes)) return true;
        break;
    }
    __atomic_sub_fetch(&lasting_bytes, n_bytes, __ATOMIC_RELAXED);
    return false;
}

void count_passing_memory(int64_t n_bytes)
{
    __atomic_add_fetch(&all_bytes, n_bytes, __ATOMIC_RELAXED);
}

void give_memory(MemoryUse use, int64_t n_bytes)
{
    if (use == MemoryUse::lasting || use == MemoryUse::traced)
        __atomic_sub_fetch(&lasting_bytes, n_bytes, __ATOMIC_RELAXED);
    if (use == MemoryUse::spare) __atomic_sub_fetch(&spare_bytes, n_bytes, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&all_bytes, n_bytes, __ATOMIC_RELAXED);
}

void forget_spare_memory()
{
    __atomic_sub_fetch(&all_bytes, spare_bytes, __ATOMIC_RELAXED);
    spare_bytes = 0;
}

bool is_memory_left(int64_t n_bytes)
{
    const auto is_left = [=] {
        return __atomic_load_n(&all_bytes, __ATOMIC_RELAXED) + n_bytes <= most_in_reads;
    };
    if (is_left()) return true;
    drop_what_is_kept();
    return is_left();
}

bool may_keep_memory()
{
    return __atomic_load_n(&all_bytes, __ATOMIC_RELAXED) <= most_kept;
}

} // namespace sds::vol
