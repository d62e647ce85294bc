#include "hdf5_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "shared_state.h"

namespace sds::vol
{
namespace
{

// What may have stayed in a part of malloc's memory, of each purpose.
enum Purpose { for_files, for_decoding, n_purposes };
struct Share {
    uint64_t part; // 0: none
    pid_t process; // of the thread, where the part is one's
    int64_t bytes[n_purposes];
};
constexpr int max_shares = 16;
Share shares[max_shares]; // touched with the lock held

constexpr int64_t max_bytes = 2 << 20; // of all shares, for a purpose; one alone may be larger
constexpr int64_t bytes_per_file = 512 << 10;
// A chunk is in memory so often at most while HDF5 decodes it: as it is stored, grown while it is
// inflated, shuffled.
constexpr int64_t copies_of_chunk = 4;

bool is_glibc_malloc()
{
    Dl_info allocator, libc;
    return dladdr(reinterpret_cast<const void *>(&malloc), &allocator) &&
           dladdr(reinterpret_cast<const void *>(&gnu_get_libc_version), &libc) &&
           allocator.dli_fbase == libc.dli_fbase;
}

constexpr uint64_t of_thread = uint64_t{1} << 63; // beside its number

// Others than glibc give back what was freed: what threads that have ended left is none then.
bool has_ended(const Share &share, pid_t process)
{
    if (share.part == 0) return true;
    if (!(share.part & of_thread)) return false;
    if (share.process != process) return true; // its parent's
    const auto thread = static_cast<pid_t>(share.part & ~of_thread);
    const int saved_errno = errno;
    const bool is_gone = syscall(SYS_tgkill, process, thread, 0) != 0 && errno == ESRCH;
    errno = saved_errno;
    return is_gone;
}

// Whether the share of a part may be as large; then it is.
bool may_take(uint64_t part, Purpose purpose, int64_t bytes)
{
    const pid_t process = getpid();
    Share *own = nullptr, *free_one = nullptr;
    int64_t others_bytes = 0;
    for (Share &share : shares) {
        if (has_ended(share, process)) {
            share = {};
            free_one = &share;
        } else if (share.part == part) {
            own = &share;
        } else {
            others_bytes += share.bytes[purpose];
        }
    }
    if (own && own->bytes[purpose] >= bytes) return true;
    Share *place = own ? own : free_one;
    if (!place || (others_bytes > 0 && others_bytes + bytes > max_bytes)) return false;
    place->part = part;
    place->process = process;
    place->bytes[purpose] = bytes;
    return true;
}

} // namespace

uint64_t part_of_malloc()
{
    constexpr size_t uncached = 4096;          // smaller ones, a thread may have freed for another
    constexpr uint64_t arena_bytes = 64 << 20; // they begin at multiples of it
    constexpr uint64_t heap_of_program = 1;
    static const bool has_arenas = is_glibc_malloc();
    if (!has_arenas) return of_thread | static_cast<uint64_t>(syscall(SYS_gettid));
    void *probe = malloc(uncached);
    const auto at = reinterpret_cast<uintptr_t>(probe);
    free(probe);
    return at < reinterpret_cast<uintptr_t>(sbrk(0)) ? heap_of_program : at / arena_bytes;
}

bool may_hold_files(uint64_t part, int n_files)
{
    return may_take(part, for_files, n_files * bytes_per_file);
}

bool may_decode_by_hdf5(int64_t chunk_bytes)
{
    SharedStateLock lock;
    return may_take(part_of_malloc(), for_decoding, copies_of_chunk * chunk_bytes);
}

} // namespace sds::vol
