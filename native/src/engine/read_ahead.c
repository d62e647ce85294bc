/* A cold read waits three times, one after the other, where it asks the kernel for all at once:
 * for the device, for pages of memory that the program has not used before (1.2 us each on a
 * virtual machine), and for the copy. Here the range is announced first. The device works on it
 * while the pages are made, and the copy begins with the first part that has come. */
#include "read_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "file_read.h"

/* What is announced at once is one request to the device, and can be copied when all of it has
 * come. Measured from 64 KiB to 1 MiB. */
#define ANNOUNCED_AT_ONCE (INT64_C(128) << 10)

/* To ask what is cached takes 60 ns: next to nothing beside copying this many bytes. */
#define LEAST_BYTES (INT64_C(64) << 10)

/* Pages of memory that was not used before are made at once from this size on: one call instead
 * of a fault for each, and a look at whether it was used, which is worth more than a short copy. */
#define LEAST_NEW_BYTES (INT64_C(512) << 10)

/* Linux 5.14; known here where the headers are older. Others refuse it. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

void sds__announce(int fd, int64_t offset, int64_t n)
{
    for (int64_t done = 0; done < n; done += ANNOUNCED_AT_ONCE) {
        const int64_t left = n - done;
        /* What is not read ahead is read when it is asked for. */
        (void)posix_fadvise(fd, (off_t)(offset + done),
                            (off_t)(left < ANNOUNCED_AT_ONCE ? left : ANNOUNCED_AT_ONCE),
                            POSIX_FADV_WILLNEED);
    }
}

void sds__make_pages(void *memory, int64_t n)
{
    const int saved_errno = errno;
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)memory / page_bytes * page_bytes;
    const uintptr_t end = (uintptr_t)memory + (uintptr_t)n;
    /* Refused, among others, where the memory may not be written: the read will say so. */
    (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
    errno = saved_errno;
}

/* Bytes that the page cache held; -1: it cannot tell, or there is nothing to read. */
static int64_t read_cached_part(int fd, void *out, int64_t n, int64_t offset)
{
    const struct iovec to = {out, (size_t)n};
    const int saved_errno = errno;
    const ssize_t got = preadv2(fd, &to, 1, (off_t)offset, RWF_NOWAIT);
    const int is_missing = got < 0 && errno == EAGAIN;
    errno = saved_errno;
    return got > 0 ? got : is_missing ? 0 : -1;
}

void sds__announce_missing(int fd, int64_t offset, int64_t n)
{
    uint8_t first;
    if (n >= LEAST_BYTES && read_cached_part(fd, &first, 1, offset) == 0)
        sds__announce(fd, offset, n);
}

/* Pages that mincore found used, each with the reads for which that still counts, in the bits below
 * a page. A loop that reads into few arrays, or into memory that it gives back between two reads,
 * looks once in this many reads. What the program has unmapped meanwhile is made fault by fault. */
#define READS_OF_A_LOOK 15
static uintptr_t used_pages[8];

static int is_known_used(uintptr_t page, uintptr_t *known)
{
    const uintptr_t found = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (found <= page || found > page + READS_OF_A_LOOK) return 0;
    __atomic_store_n(known, found - 1, __ATOMIC_RELAXED);
    return 1;
}

/* Whether memory was not used before: a look at one page in the middle. */
static int is_new(const void *memory, int64_t n)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t page = ((uintptr_t)memory + (uintptr_t)n / 2) / page_bytes * page_bytes;
    /* Arrays lie apart by more than they are long. */
    uintptr_t *const known = &used_pages[page / (uintptr_t)LEAST_NEW_BYTES % 8];
    if (is_known_used(page, known)) return 0;
    const int saved_errno = errno;
    unsigned char state = 1;
    const int is_told = mincore((void *)page, 1, &state) == 0;
    errno = saved_errno;
    const int is_used = !is_told || (state & 1) != 0;
    __atomic_store_n(known, is_used ? page + READS_OF_A_LOOK : 0, __ATOMIC_RELAXED);
    return !is_used;
}

/* Kernels begin to read what they are asked for and do not have, all of it and more as one request,
 * and that takes as long as to make its pages. So the first byte alone is asked for where it may
 * well be missing, or where pages are to be made: of what is cached at once, of the rest while the
 * device works. */
static int64_t read_while_cached(int fd, void *out, int64_t n, int64_t offset, int was_missing)
{
    const int has_no_pages = n >= LEAST_NEW_BYTES && is_new(out, n);
    const int64_t first = was_missing || has_no_pages ? read_cached_part(fd, out, 1, offset) : 1;
    if (first == 1 && has_no_pages &&
        read_cached_part(fd, (uint8_t *)out + n - 1, 1, offset + n - 1) == 1)
        sds__make_pages(out, n);
    return first == 1 ? read_cached_part(fd, out, n, offset) : first;
}

sds_status sds__read_range(int fd, void *out, int64_t n, int64_t offset, int32_t *was_missing)
{
    if (n < LEAST_BYTES) return sds__read_all(fd, out, n, offset);
    const int32_t before = __atomic_load_n(was_missing, __ATOMIC_RELAXED);
    const int64_t cached = read_while_cached(fd, out, n, offset, before);
    const int64_t got = cached > 0 ? cached : 0;
    const int32_t is_missing = cached >= 0 && cached < n;
    if (is_missing != before) __atomic_store_n(was_missing, is_missing, __ATOMIC_RELAXED);
    if (is_missing) {
        sds__announce(fd, offset + got, n - got);
        sds__make_pages((uint8_t *)out + got, n - got);
    }
    return sds__read_all(fd, (uint8_t *)out + got, n - got, offset + got);
}
