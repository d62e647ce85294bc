// The reads of a program that goes through a dataset in chunks, few chunks at a time.
//
// What HDF5 would decode of them, had it read all, is what its cache would not hold; the core
// decodes all that is asked for, faster. Whenever the cache has changed all that it holds, both are
// counted, and where the core would have taken less than two thirds of HDF5's time, it decodes from
// then on, for as long as it does not cost more than a quarter of what the cache has room for.
#pragma once

#include <stdint.h>

namespace sds::vol
{

struct CacheModel;

struct ChunkWalk {
    CacheModel *cache; // nullptr: nothing is followed
    uint64_t dataset;  // which it is; 0: that is not known
    int64_t room;      // chunks, in HDF5's cache
    int64_t n_missed;  // that the cache would not have held, since they were counted anew
    int64_t saved;     // if the core decodes: parts (parts_of_a_chunk) of HDF5's time for a chunk
    bool is_decoded;   // the core decodes what is asked for
    bool has_begun;    // the first read has filled the cache, and is not counted
    bool is_new;       // the cache would hold none of the chunks of the latest read
    bool busy;         // a thread is using all this
};

// Times are counted in so many parts of what HDF5 takes to decode a chunk.
constexpr int64_t parts_of_a_chunk = 8;

// Go on where the handle of this dataset that was closed last has ended, if that is kept: programs
// open a dataset for each read of it.
void begin_walk(ChunkWalk &walk, uint64_t dataset, int64_t room);
void end_walk(ChunkWalk &walk);

// A read asks for the chunks from first to last, inclusive, on each axis.
// core_parts: what the core takes for each.
void follow(ChunkWalk &walk, int32_t rank, const int64_t first[], const int64_t last[],
            int64_t core_parts);

} // namespace sds::vol
