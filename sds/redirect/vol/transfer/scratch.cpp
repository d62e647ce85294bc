#include "scratch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "memory_budget.h"

namespace sds::vol
{
namespace
{

constexpr int64_t smallest_mapped = 64 << 10;
constexpr size_t unit = 256 << 10;
constexpr int64_t large_pieces = 2 << 20, small_pieces = 512 << 10;
int64_t pieces = large_pieces;

// A block that no read uses begins with its size.
size_t *kept = nullptr;

bool is_worth_keeping(size_t n_bytes)
{
    return static_cast<int64_t>(n_bytes) <= most_piece_bytes();
}

void unmap(size_t *block)
{
    const size_t size = *block;
    munmap(block, size);
    give_memory(MemoryUse::passing, static_cast<int64_t>(size));
}

// Keep the block for the next read, or give it back.
void settle(size_t *block)
{
    size_t *none = nullptr;
    if (!is_worth_keeping(*block) || !may_keep_memory() ||
        !__atomic_compare_exchange_n(&kept, &none, block, false, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED))
        unmap(block);
}

} // namespace

int64_t most_piece_bytes()
{
    const int64_t most = __atomic_load_n(&pieces, __ATOMIC_RELAXED);
    return is_memory_left(most) ? most : small_pieces;
}

void use_small_pieces(bool small)
{
    __atomic_store_n(&pieces, small ? small_pieces : large_pieces, __ATOMIC_RELAXED);
    size_t *block = __atomic_exchange_n(&kept, nullptr, __ATOMIC_ACQUIRE);
    if (block) settle(block);
}

void drop_kept_scratch()
{
    size_t *block = __atomic_exchange_n(&kept, nullptr, __ATOMIC_ACQUIRE);
    if (block) unmap(block);
}

bool Scratch::allocate(int64_t n_bytes)
{
    if (n_bytes < smallest_mapped) {
        bytes_ = static_cast<char *>(malloc(static_cast<size_t>(n_bytes)));
        return bytes_ != nullptr;
    }
    const size_t needed = (static_cast<size_t>(n_bytes) + unit - 1) / unit * unit;
    size_t *found = __atomic_exchange_n(&kept, nullptr, __ATOMIC_ACQUIRE);
    if (found && *found < needed) {
        unmap(found);
        found = nullptr;
    }
    size_ = found ? *found : needed;
    if (!found) {
        const int saved_errno = errno;
        void *mapped =
            mmap(nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) {
            size_ = 0;
            errno = saved_errno;
            return false;
        }
        count_passing_memory(static_cast<int64_t>(needed));
        found = static_cast<size_t *>(mapped);
    }
    bytes_ = reinterpret_cast<char *>(found);
    return true;
}

Scratch::~Scratch()
{
    if (size_ == 0) {
        free(bytes_);
        return;
    }
    auto *block = reinterpret_cast<size_t *>(bytes_);
    *block = size_;
    settle(block);
}

} // namespace sds::vol
