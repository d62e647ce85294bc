#include "chunk_walk.h"

#include "cache_model.h"
#include "shared_state.h"

namespace sds::vol
{
namespace
{

// Fewer chunks say little of what a program asks for.
constexpr int64_t least_missed = 16;

// Of handles that were closed; touched with the lock held.
constexpr int most_kept = 8;
ChunkWalk kept[most_kept];
unsigned next_kept = 0;

bool find_kept(ChunkWalk &walk)
{
    const SharedStateLock lock;
    for (ChunkWalk &other : kept) {
        if (!other.cache || other.dataset != walk.dataset || other.room != walk.room) continue;
        walk = other;
        other = {};
        return true;
    }
    return false;
}

// Returns the one whose place it takes.
ChunkWalk keep(const ChunkWalk &walk)
{
    const SharedStateLock lock;
    ChunkWalk &place = kept[next_kept++ % most_kept];
    const ChunkWalk other = place;
    place = walk;
    return other;
}

void count(ChunkWalk &walk, int64_t n_asked, int64_t n_missed, int64_t core_parts)
{
    const int64_t at_stake = walk.room * parts_of_a_chunk / 4;
    const int64_t by_hdf5 = n_missed * parts_of_a_chunk, by_core = n_asked * core_parts;
    if (walk.is_decoded) {
        walk.saved += by_hdf5 - by_core;
        if (walk.saved > at_stake) walk.saved = at_stake;
        if (walk.saved >= 0) return;
        walk.is_decoded = false;
    } else {
        walk.n_missed += n_missed;
        walk.saved += by_hdf5 - by_core - by_core / 2;
        if (walk.n_missed <= walk.room || walk.n_missed < least_missed) return;
        walk.is_decoded = walk.saved > 0;
    }
    walk.n_missed = 0;
    walk.saved = walk.is_decoded ? at_stake : 0;
}

} // namespace

void begin_walk(ChunkWalk &walk, uint64_t dataset, int64_t room)
{
    walk = {};
    walk.dataset = dataset;
    walk.room = room;
    if (dataset == 0 || !find_kept(walk)) walk.cache = make_cache_model(room);
}

void end_walk(ChunkWalk &walk)
{
    if (walk.cache && walk.dataset != 0) walk = keep(walk);
    release_cache_model(walk.cache);
    walk.cache = nullptr;
}

void follow(ChunkWalk &walk, int32_t rank, const int64_t first[], const int64_t last[],
            int64_t core_parts)
{
    if (!walk.cache || __atomic_test_and_set(&walk.busy, __ATOMIC_ACQUIRE)) return;
    const Asked asked = ask_for(*walk.cache, rank, first, last);
    walk.is_new = asked.n > 0 && asked.n_held == 0;
    if (asked.n > 0 && walk.has_begun) count(walk, asked.n, asked.n - asked.n_held, core_parts);
    walk.has_begun = true;
    __atomic_clear(&walk.busy, __ATOMIC_RELEASE);
}

} // namespace sds::vol
