#include "source_freshness.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "clock.h"
#include "open_file.h"

namespace sds::vol
{
namespace
{

#ifdef STATX_BASIC_STATS
int64_t ns_of(const struct statx_timestamp &time)
{
    return time.tv_sec * 1000000000 + time.tv_nsec;
}
#endif

// Whether the file is what it was, as far as this machine knows without asking a file server. False
// says nothing yet: what file systems answer in haste may be less exact.
bool is_as_remembered(const OpenFile &file)
{
#ifdef STATX_BASIC_STATS
    const int saved_errno = errno;
    struct statx now;
    const int found =
        statx(AT_FDCWD, file.path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &now);
    errno = saved_errno; // kernels before 4.11 and some containers have no such call
    return found == 0 && (now.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS &&
           now.stx_nlink > 0 && makedev(now.stx_dev_major, now.stx_dev_minor) == file.device &&
           now.stx_ino == file.identity.inode &&
           static_cast<int64_t>(now.stx_size) == file.identity.size_bytes &&
           ns_of(now.stx_mtime) == file.identity.mtime_ns &&
           ns_of(now.stx_ctime) == file.identity.ctime_ns;
#else
    (void)file;
    return false;
#endif
}

} // namespace

bool is_fresh(OpenFile &file)
{
    if (__atomic_load_n(&file.is_stale, __ATOMIC_ACQUIRE)) return false;
    const int64_t now_ns = coarse_monotonic_ns();
    const bool is_due =
        now_ns - __atomic_load_n(&file.checked_ns, __ATOMIC_ACQUIRE) >= freshness_interval_ns;
    if (!is_due && is_as_remembered(file)) return true;
    const int saved_errno = errno;
    sds_identity now;
    struct stat found;
    // HDF5 has the file open, so that no other file system takes the number of its device.
    const bool is_same = stat(file.path, &found) == 0 && found.st_dev == file.device &&
                         sds_identity_of_path(file.path, &now, nullptr, nullptr) == SDS_OK &&
                         sds_identity_equal(&now, &file.identity);
    errno = saved_errno;
    // Others look as well, rather than wait for a file system that is slow to answer.
    if (!is_same) __atomic_store_n(&file.is_stale, true, __ATOMIC_RELEASE);
    __atomic_store_n(&file.checked_ns, now_ns, __ATOMIC_RELEASE);
    return is_same && !__atomic_load_n(&file.is_stale, __ATOMIC_ACQUIRE);
}

} // namespace sds::vol
