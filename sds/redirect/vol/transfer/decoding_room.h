// The memory in which chunks of replicas are decoded: little for a process, however many threads of
// it read through however many libraries. Where it is in use, the original is read.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sds/filters.h"

namespace sds::vol
{

// Of all buffers of a process together: two of the largest chunks.
constexpr int64_t max_decoding_bytes = 9 << 18;

// What a thread decodes with: memory, where it has its own, and what a filter keeps.
struct DecodingBlock {
    pid_t user; // process that uses it: in the child of a fork, no read of the parent's goes on
    char *bytes;
    size_t size;       // 0: none
    sds_filter filter; // that the state is of
    void *state;       // of sds_filter_begin
};

// A block of memory for a read that decodes. What one read has used, the next one has; none of it
// is malloc's, which keeps what threads free in memory of its own for each few of them.
class DecodingBuffer
{
  public:
    DecodingBuffer() : slot_(-1), bytes_(nullptr), own_{} {}
    ~DecodingBuffer();
    DecodingBuffer(const DecodingBuffer &) = delete;
    DecodingBuffer &operator=(const DecodingBuffer &) = delete;

    // False where others use the room, or memory is exhausted. What was taken before is kept.
    bool take(int64_t n_bytes);
    // Beside the room, until the read ends: for chunks of originals, of which HDF5 would take as
    // much. Likewise.
    bool take_own(int64_t n_bytes);
    char *bytes() const { return bytes_; } // nullptr before
    DecodingBlock &block();

  private:
    int slot_; // of the blocks that are kept; negative: none
    char *bytes_;
    DecodingBlock own_;
};

// What a filter keeps from chunk to chunk; nullptr where memory is exhausted.
void *state_of(DecodingBlock &block, const sds_filter &filter);
void drop_state(DecodingBlock &block);

// Give back what no read uses. To be called with the lock of shared_state.h held.
void drop_decoding_buffers();

} // namespace sds::vol
