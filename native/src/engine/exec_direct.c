/* Reads groups past the page cache, many in flight, into buffers that are aligned as the device
 * wants it; what is asked for is copied from there.
 *
 * The file is opened once more for that, and stays so until sds_file_close(): closing any
 * descriptor of a file takes from the process the POSIX locks that it has on it.
 *
 * What is read like that, the next read would find cold again, and the next. So the page cache is
 * given a few pages of it, and who finds any of them reads through the cache: whatever program it
 * is, and until the cache has no room for them any more. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arithmetic.h"
#include "cache_probe.h"
#include "exec.h"
#include "read_ahead.h"
#include "request_queue.h"

#define USUAL_ALIGNMENT 4096

/* Pieces whose last bytes the page cache is given, with those right before them: where the next
 * read goes on behind this one, it finds the last bytes. Not the first piece, of which whoever
 * looks whether a read is cached has the kernel read a page. */
#define N_MARKED 8

/* Told to the kernel at once, as in exec_list.c. */
#define BATCH 16

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

/* The n-th of those places: of a single piece, bytes spread over it. */
static sds__group marked(const sds__access *access, int n)
{
    const int64_t n_pieces = sds__access_pieces(access);
    const int64_t piece = n_pieces * n / (N_MARKED + 1);
    const int64_t skipped =
        n_pieces > N_MARKED ? 0 : sds__piece_bytes(access, piece) * n / (N_MARKED + 1);
    const int64_t length = sds__piece_bytes(access, piece) - skipped;
    return (sds__group){.offset = sds__piece_offset(access, piece) + skipped, .length = length};
}

int sds__was_read_directly(const sds_file *file, const sds__access *access)
{
    for (int n = 1; n <= N_MARKED; n++) {
        const sds__group at = marked(access, n);
        const int64_t before = sds__greatest(at.offset - 1, 0);
        if (sds__probe_byte(file, before) == SDS_CACHE_WARM) return 1;
    }
    return 0;
}

static void leave_marks(const sds_file *file, const sds__access *access)
{
    for (int n = 1; n <= N_MARKED; n++) {
        const sds__group at = marked(access, n);
        sds__announce(file->fd, sds__greatest(at.offset - 1, 0), 1);
        sds__announce(file->fd, at.offset + at.length - 1, 1);
    }
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
            .batch = (int32_t)sds__least(plan->queue_depth, BATCH),
            .max_memory_bytes = plan->memory_bytes,
            .is_watched = 0,
        };
        const sds_status status = sds__read_queue(file, access, plan, &options, place, report);
        if (is_own(file, fd)) {
            if (status == SDS_OK) leave_marks(file, access);
            return status;
        }
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
