#include "scratch.h"

#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

// Keep the block for the next read, or give it back.
void settle(size_t *block)
{
    size_t *none = nullptr;
    if (!is_worth_keeping(*block) ||
        !__atomic_compare_exchange_n(&kept, &none, block, false, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED))
        munmap(block, *block);
}

} // namespace

int64_t most_piece_bytes()
{
    return __atomic_load_n(&pieces, __ATOMIC_RELAXED);
}

void use_small_pieces(bool small)
{
    __atomic_store_n(&pieces, small ? small_pieces : large_pieces, __ATOMIC_RELAXED);
    size_t *block = __atomic_exchange_n(&kept, nullptr, __ATOMIC_ACQUIRE);
    if (block) settle(block);
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
        munmap(found, *found);
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

namespace
{

int registers_memory(dl_phdr_info *loaded, size_t, void *)
{
    static constexpr const char *names[] = {"libibverbs", "libfabric", "libucp", "libmpi"};
    for (const char *name : names)
        if (strstr(loaded->dlpi_name, name)) return 1;
    return 0;
}

// Whether pages of free memory may be taken from the program's allocator. Not where a network card
// may hold them registered: a later message would leave from the old pages. Not where the allocator
// is not glibc's, or gives out huge or tagged pages.
bool may_give_back()
{
    if (config().rank >= 0) return false;
    const char *tunables = getenv("GLIBC_TUNABLES");
    if (tunables && (strstr(tunables, "hugetlb") || strstr(tunables, "tagging"))) return false;
    Dl_info allocator, libc;
    if (!dladdr(reinterpret_cast<const void *>(&malloc), &allocator) ||
        !dladdr(reinterpret_cast<const void *>(&gnu_get_libc_version), &libc) ||
        allocator.dli_fbase != libc.dli_fbase)
        return false;
    return dl_iterate_phdr(registers_memory, nullptr) == 0;
}

} // namespace

void DecodingMemory::give_back() const
{
    if (!may_give_back()) return;
    // A chunk is in memory up to four times: as it is stored, grown while it is inflated, shuffled.
    // Where those lay there may be something else by now; smaller blocks fit beside it.
    constexpr int n_blocks = 12;
    constexpr int parts[n_blocks] = {1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 16, 16}; // of a chunk
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const int saved_errno = errno;
    void *blocks[n_blocks];
    int n = 0;
    for (; n < n_blocks; n++) {
        const size_t size = static_cast<size_t>(chunk_bytes_) / static_cast<size_t>(parts[n]);
        if (size < 8 * page) break;
        blocks[n] = malloc(size);
        if (!blocks[n]) break;
        const uintptr_t first = reinterpret_cast<uintptr_t>(blocks[n]);
        const uintptr_t begin = (first + page - 1) / page * page,
                        end = (first + size) / page * page;
        madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
    }
    while (n > 0)
        free(blocks[--n]);
    errno = saved_errno;
}

} // namespace sds::vol
