/* Reads groups past the page cache, many in flight, into buffers that are aligned as the device
 * wants it; what is asked for is copied from there.
 *
 * The file is opened once more for that, and stays so until sds_file_close(): closing any
 * descriptor of a file takes from the process the POSIX locks that it has on it. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec.h"
#include "request_queue.h"

#define USUAL_ALIGNMENT 4096

/* False where the program has closed a descriptor that was not its own. */
static int is_own(const sds_file *file, int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 && found.st_dev == file->direct_device &&
           found.st_ino == file->direct_inode;
}

/* 0: not possible for this file. */
static int64_t alignment_of(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx found;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 &&
        (found.stx_mask & STATX_DIOALIGN) != 0)
        return found.stx_dio_mem_align > found.stx_dio_offset_align ? found.stx_dio_mem_align
                                                                    : found.stx_dio_offset_align;
#else
    (void)fd;
#endif
    return USUAL_ALIGNMENT;
}

/* The program may have closed its standard streams: it opens them anew counting on their numbers.
 * Descriptors that only name a file (O_PATH) hold these meanwhile; closing them costs no lock. */
static int open_above_streams(const sds_file *file)
{
    int plugs[STDERR_FILENO + 2];
    int n = 0, fd = -1;
    do
        plugs[n] = open(file->path, O_PATH | O_CLOEXEC);
    while (plugs[n] >= 0 && plugs[n] <= STDERR_FILENO && ++n);
    const int named = plugs[n];
    if (named >= 0 && is_own(file, named))
        fd = open(file->path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    for (; n >= 0; n--)
        if (plugs[n] >= 0) (void)close(plugs[n]);
    if (fd >= 0 && !is_own(file, fd)) { /* renamed between the two */
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* One thread opens it; others that come at the same time do without. */
static int direct_descriptor(sds_file *file)
{
    int state = SDS__DIRECT_UNTRIED;
    if (file->path == NULL) return -1;
    if (!__atomic_compare_exchange_n(&file->direct_fd, &state, SDS__DIRECT_REFUSED, 0,
                                     __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
        return state;
    const int saved_errno = errno;
    struct stat found;
    if (fstat(file->fd, &found) != 0) return -1;
    file->direct_device = found.st_dev;
    file->direct_inode = found.st_ino;
    file->direct_alignment = alignment_of(file->fd);
    const int fd = file->direct_alignment > 0 ? open_above_streams(file) : -1;
    if (fd >= 0) __atomic_store_n(&file->direct_fd, fd, __ATOMIC_RELEASE);
    errno = saved_errno;
    return fd;
}

int sds__may_read_directly(const sds_file *file)
{
    return file->path != NULL &&
           __atomic_load_n(&file->direct_fd, __ATOMIC_RELAXED) != SDS__DIRECT_REFUSED;
}

void sds__close_direct(sds_file *file)
{
    /* The program may have closed it, and have been given its number. */
    if (file->direct_fd >= 0 && is_own(file, file->direct_fd)) (void)close(file->direct_fd);
}

sds_status sds__run_direct(sds_file *file, const sds__access *access, const sds_read_plan *plan,
                           sds__place *place, sds_read_report *report)
{
    const sds__place begin = *place;
    const sds_read_report before = *report;
    int fd = direct_descriptor(file);
    if (fd >= 0 && is_own(file, fd)) {
        const sds__queue_options options = {
            .fd = fd,
            .alignment = file->direct_alignment,
            .group_bytes = plan->group_bytes,
            .depth = plan->queue_depth,
            .batch = plan->queue_depth,
            .max_memory_bytes = plan->memory_bytes,
            .is_watched = 0,
        };
        const sds_status status = sds__read_queue(file, access, plan, &options, place, report);
        if (is_own(file, fd)) return status;
    }
    /* Not possible, or the program has closed a descriptor that was not its own. */
    if (fd >= 0)
        (void)__atomic_compare_exchange_n(&file->direct_fd, &fd, SDS__DIRECT_REFUSED, 0,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    *place = begin;
    *report = before;
    report->plan.executor = SDS_EXECUTOR_LIST;
    return sds__run_list(file, access, plan, place, report);
}
