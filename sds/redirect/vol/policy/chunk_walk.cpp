#include "chunk_walk.h"

#include <stdlib.h>

#include "cache_model.h"
#include "shared_state.h"

namespace sds::vol
{

struct ChunkWalk {
    ChunkWalk *next;
    uint64_t dataset;
    int64_t room;
    int references; // handles of the dataset
    uint64_t ended; // when the last of them was closed, in walks that have ended
    CacheModel *cache;
    int64_t n_missed; // chunks that the cache would not have held, since they were counted anew
    int64_t saved;    // if the core decodes: parts of HDF5's time for a chunk
    bool is_decoded;
    bool has_begun; // the first read has filled the cache, and is not counted
    bool busy;      // a thread is using all but the first five
};

namespace
{

// Fewer chunks say little of what a program asks for.
constexpr int64_t least_missed = 16;

// Touched with the lock held, with what the first five fields hold.
constexpr int most_kept = 8; // without a handle
ChunkWalk *walks = nullptr;
uint64_t n_ended = 0;

void release(ChunkWalk *walk)
{
    if (!walk) return;
    release_cache_model(walk->cache);
    free(walk);
}

ChunkWalk *find_and_take(uint64_t dataset, int64_t room)
{
    const SharedStateLock lock;
    for (ChunkWalk *walk = walks; walk; walk = walk->next) {
        if (walk->dataset != dataset || walk->room != room) continue;
        walk->references++;
        return walk;
    }
    return nullptr;
}

// Returns the one without a handle that has ended first, if there are too many.
ChunkWalk *give_back(ChunkWalk &walk)
{
    const SharedStateLock lock;
    if (--walk.references > 0) return nullptr;
    walk.ended = ++n_ended;
    ChunkWalk **oldest = nullptr;
    int n = 0;
    for (ChunkWalk **at = &walks; *at; at = &(*at)->next) {
        if ((*at)->references > 0) continue;
        if (!oldest || (*at)->ended < (*oldest)->ended) oldest = at;
        n++;
    }
    if (n <= most_kept || !oldest) return nullptr;
    ChunkWalk *dropped = *oldest;
    *oldest = dropped->next;
    return dropped;
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

ChunkWalk *begin_walk(uint64_t dataset, int64_t room)
{
    if (ChunkWalk *known = dataset != 0 ? find_and_take(dataset, room) : nullptr) return known;
    auto *walk = static_cast<ChunkWalk *>(calloc(1, sizeof(ChunkWalk)));
    if (walk) walk->cache = make_cache_model(room);
    if (!walk || !walk->cache) {
        release(walk);
        return nullptr;
    }
    walk->dataset = dataset;
    walk->room = room;
    walk->references = 1;
    if (dataset == 0) return walk;
    const SharedStateLock lock;
    walk->next = walks;
    walks = walk;
    return walk;
}

void end_walk(ChunkWalk *walk)
{
    if (walk) release(walk->dataset == 0 ? walk : give_back(*walk));
}

WalkedRead follow(ChunkWalk &walk, int32_t rank, const int64_t first[], const int64_t last[],
                  int64_t core_parts)
{
    if (__atomic_test_and_set(&walk.busy, __ATOMIC_ACQUIRE)) return {0, 0, false};
    const Asked asked = ask_for(*walk.cache, rank, first, last);
    if (asked.n > 0 && walk.has_begun) count(walk, asked.n, asked.n - asked.n_held, core_parts);
    walk.has_begun = true;
    const WalkedRead read = {asked.n, asked.n_held, asked.n > 0 && walk.is_decoded};
    __atomic_clear(&walk.busy, __ATOMIC_RELEASE);
    return read;
}

void lose_track(ChunkWalk &walk)
{
    if (__atomic_test_and_set(&walk.busy, __ATOMIC_ACQUIRE)) return;
    walk.n_missed = walk.saved = 0;
    walk.is_decoded = walk.has_begun = false;
    __atomic_clear(&walk.busy, __ATOMIC_RELEASE);
}

} // namespace sds::vol
