// Chunks of replicas that were decoded for the last reads: most programs advance within a chunk.
//
// In place of HDF5's own cache, whose chunks may take twice their size, and leave holes in the heap
// where they go.
#pragma once

#include "replica_dataset.h"
#include "sds/geometry.h"

namespace sds::vol
{

constexpr int64_t max_cached_bytes = 1 << 20; // of all boxes together

// A box of whole chunks of a replica, for one read.
class CachedBox
{
  public:
    // box: start and count of each axis; n_bytes: of its elements, max_cached_bytes at most.
    CachedBox(const ReplicaDataset &replica, const sds_hyperslab &box, int64_t n_bytes);
    ~CachedBox();
    CachedBox(const CachedBox &) = delete;
    CachedBox &operator=(const CachedBox &) = delete;

    // nullptr where other threads use the cache, or memory is exhausted.
    char *bytes() const { return bytes_; }
    bool is_filled() const { return is_filled_; } // else the bytes are anything
    void set_filled();
    // True where the box was asked for before and could not be kept, nor can it now, for want of
    // memory: each read of a part of it would have all of it decoded. Then there are no bytes.
    bool is_refused_again() const { return is_refused_again_; }

  private:
    bool find_memory(int64_t n_bytes);

    const ReplicaDataset &replica_;
    const sds_hyperslab &box_;
    int block_;
    char *bytes_;
    bool is_filled_;
    bool is_refused_again_;
};

// Give the memory back. To be called where no read goes on.
void drop_cached_boxes();

} // namespace sds::vol
