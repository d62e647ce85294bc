#include "hdf5_memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "elf_image.h"
#include "memory_budget.h"
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

// Of all shares, for a purpose; one alone may be larger. memory_budget.h bounds both purposes.
constexpr int64_t max_bytes = 2 << 20;
constexpr int64_t bytes_per_file = 512 << 10;

bool is_of_libc(const void *function)
{
    Image found, libc;
    return find_loaded_image(function, found) &&
           find_loaded_image(reinterpret_cast<const void *>(&gnu_get_libc_version), libc) &&
           found.segments == libc.segments;
}

// Whether a program's own malloc takes what it gives from glibc's, as such that count or check do.
// Other threads may make the answer a wrong one: then threads count in place of arenas, or
// addresses in place of threads.
bool takes_from_glibc()
{
    constexpr size_t n_bytes = 64 << 10; // of an arena, and not from a thread's cache
    struct Usage {
        size_t field[10]; // mallinfo2, which glibc has since 2.33
    };
    constexpr int in_use = 7;
    auto *ask = reinterpret_cast<Usage (*)()>(dlsym(RTLD_DEFAULT, "mallinfo2"));
    if (!ask || !is_of_libc(reinterpret_cast<const void *>(ask))) return false;
    const size_t before = ask().field[in_use];
    void *volatile probe = malloc(n_bytes);
    const size_t with = ask().field[in_use];
    free(probe);
    return probe && with >= before + n_bytes && with - before < 2 * n_bytes;
}

bool is_glibc_malloc()
{
    return is_of_libc(reinterpret_cast<const void *>(&malloc)) || takes_from_glibc();
}

bool has_arenas = false; // malloc is glibc's, or takes from it
pthread_once_t looked_at = PTHREAD_ONCE_INIT;

void look_at_malloc()
{
    has_arenas = is_glibc_malloc();
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

void give_share(Share &share)
{
    for (const int64_t n_bytes : share.bytes)
        if (n_bytes > 0) give_memory(MemoryUse::lasting, n_bytes);
    share = {};
}

// Whether the share of a part may be as large; then it is.
bool may_take(uint64_t part, Purpose purpose, int64_t bytes)
{
    const pid_t process = getpid();
    Share *own = nullptr, *free_one = nullptr;
    int64_t others_bytes = 0;
    for (Share &share : shares) {
        if (has_ended(share, process)) {
            give_share(share);
            free_one = &share;
        } else if (share.part == part) {
            own = &share;
        } else {
            others_bytes += share.bytes[purpose];
        }
    }
    if (own && own->bytes[purpose] >= bytes) return true;
    Share *place = own ? own : free_one;
    if (!place || (others_bytes > 0 && others_bytes + bytes > max_bytes) ||
        !take_memory(MemoryUse::lasting, bytes - place->bytes[purpose]))
        return false;
    place->part = part;
    place->process = process;
    place->bytes[purpose] = bytes;
    return true;
}

} // namespace

void find_malloc()
{
    pthread_once(&looked_at, look_at_malloc);
}

uint64_t part_of_malloc()
{
    constexpr size_t uncached = 4096;          // smaller ones, a thread may have freed for another
    constexpr uint64_t arena_bytes = 64 << 20; // they begin at multiples of it
    constexpr uint64_t heap_of_program = 1;
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

bool may_decode_by_hdf5(int64_t n_bytes)
{
    SharedStateLock lock;
    // Of three filters and more, chunks of 1 MiB take nearly a MiB that is not counted.
    constexpr int64_t most = most_lasting_bytes - bytes_per_file;
    return may_take(part_of_malloc(), for_decoding, n_bytes < most ? n_bytes : most);
}

} // namespace sds::vol
