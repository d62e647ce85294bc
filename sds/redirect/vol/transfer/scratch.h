// Memory for one read.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sds::vol
{

// What a read takes of it at a time, where it may choose.
int64_t most_piece_bytes();
// From now on less than at first, or as much. Replicas that HDF5 has open take memory as well.
void use_small_pieces(bool small);
// Give back what no read uses.
void drop_kept_scratch();

// Not from malloc, where it is large: glibc keeps what is freed there, in each of a dozen arenas
// that threads share, and leaves more to them once it has met such sizes. One such block is kept
// for the next read; threads that read at the same time have others, until the read ends.
class Scratch
{
  public:
    Scratch() : bytes_(nullptr), size_(0) {}
    ~Scratch();
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    // False where memory is exhausted. To be called once.
    bool allocate(int64_t n_bytes);
    char *bytes() const { return bytes_; } // nullptr before

  private:
    char *bytes_;
    size_t size_; // of what is mapped; 0 where it is not
};

} // namespace sds::vol
