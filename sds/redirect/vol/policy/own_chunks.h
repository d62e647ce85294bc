// Compressed originals whose chunks the core decodes in place of HDF5.
//
// libdeflate takes a third to half of the time of zlib, by which HDF5 inflates, and several threads
// take less where processors have nothing else to do. HDF5 keeps decoded what its cache of chunks
// has room for, rather chunks of which a part was read than others: what it would have kept of a
// read is not there for the next one. So a read is taken where that cache has been of no use, or
// where the read is so much larger than the cache that it gains more than it can lose. Others are
// left to HDF5.
#pragma once

#include "chunk_filters.h"
#include "chunk_walk.h"
#include "object.h"

struct sds_hyperslab;

namespace sds::vol
{

struct OpenDataset;
struct StoredDataset;

struct OwnChunks {
    ChunkFilters filters;
    int64_t chunk_bytes; // of elements
    int64_t cache_bytes; // of HDF5's cache
    bool is_left;        // to HDF5: the core could not decode a chunk of it
    ChunkWalk *walk;     // nullptr: it is not followed
    WalkedRead latest;   // through this handle
    int n_granted;       // threads that found a processor for the latest read; 0: nobody looked
};

// What is known of a dataset of a file that is open for reading alone; nullptr where HDF5 is to
// read all of it. type: of its elements.
OwnChunks *find_own_chunks(const Object &object, const OpenDataset &dataset, hid_t type);
void release_own_chunks(OwnChunks *chunks);

// A read spans elements from low to high, inclusive; is_box: it selects all of them. To be called
// once for each read, before it is asked for threads.
enum class Span { decoded_perhaps, new_to_cache, held_by_cache };
Span see_span(OwnChunks &chunks, const StoredDataset &stored, const int64_t low[],
              const int64_t high[], bool is_box);
// A read is not seen, or not what it spans.
void miss_read(OwnChunks &chunks);
// How many threads are to decode what a selection touches, of the read that was seen last; 0: HDF5
// is to read it.
int threads_to_decode(OwnChunks &chunks, const StoredDataset &stored, const sds_hyperslab &slab);

} // namespace sds::vol
