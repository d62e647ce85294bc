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

// What HDF5 takes to decode chunks, it frees; but each arena of glibc's malloc keeps what was freed
// at its end, and there is one for every few threads. So take blocks of the thread's arena for a
// moment, and give the system back the pages that they lie on.
class DecodingMemory
{
  public:
    explicit DecodingMemory(int64_t chunk_bytes) : chunk_bytes_(chunk_bytes), is_used_(false) {}
    ~DecodingMemory()
    {
        if (is_used_) give_back();
    }
    DecodingMemory(const DecodingMemory &) = delete;
    DecodingMemory &operator=(const DecodingMemory &) = delete;

    // To be called before anything is decoded.
    void use() { is_used_ = true; }

  private:
    void give_back() const;

    int64_t chunk_bytes_;
    bool is_used_;
};

} // namespace sds::vol
