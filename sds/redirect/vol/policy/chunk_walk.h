// The reads of a program that goes through a dataset in chunks, few chunks at a time.
//
// What HDF5 would decode of them, had it read all, is what its cache would not hold; the core
// decodes all that is asked for, faster. Whenever the cache has changed all that it holds, both are
// counted, and where the core would have taken less than two thirds of HDF5's time, it decodes from
// then on, for as long as it does not cost more than a quarter of what the cache has room for.
//
// A dataset has one walk, as HDF5 has one cache for all handles of it. It is kept for a while when
// the last of them is closed: programs open a dataset for each read.
#pragma once

#include <stdint.h>

namespace sds::vol
{

struct ChunkWalk;

// Times are counted in so many parts of what HDF5 takes to decode a chunk.
constexpr int64_t parts_of_a_chunk = 8;

// dataset: which it is; 0 where that is not known. room: chunks, in HDF5's cache. nullptr where it
// cannot be followed.
ChunkWalk *begin_walk(uint64_t dataset, int64_t room);
void end_walk(ChunkWalk *walk);

// What is known of a read.
struct WalkedRead {
    int64_t n_asked; // chunks; 0: it was not followed
    int64_t n_held;  // of them, by the cache, had HDF5 read all
    bool is_decoded; // by the core, as the walk goes
};

// A read asks for the chunks from first to last, inclusive, on each axis.
// core_parts: what the core takes for each.
WalkedRead follow(ChunkWalk &walk, int32_t rank, const int64_t first[], const int64_t last[],
                  int64_t core_parts);
// A read asks for chunks, and it is not known for which: all begins anew.
void lose_track(ChunkWalk &walk);

} // namespace sds::vol
