/* Files of tests, and bringing them into and out of the page cache until they are there or gone. */
#ifndef SDS_TESTS_PAGE_CACHE_H
#define SDS_TESTS_PAGE_CACHE_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* Exit status of a test that left something out, and said what: as CTest and Automake have it. */
#define EXIT_LEFT_OUT 77

/* For what hangs: a busy machine, on which a process may get little time, is not it. */
#define PATIENCE_S 300
#define PATIENCE_TRIES 1000

/* Linux 6.5; older headers do not have it. */
#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif

static inline time_t seconds_now(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec;
}

/* After a number of tries, and since a time. */
static inline int is_in_vain(int64_t n_tries, time_t since_s)
{
    return n_tries > PATIENCE_TRIES && seconds_now() - since_s > PATIENCE_S;
}

/* Wait a millisecond; end the test where something was waited for too long. */
static inline void wait_a_moment(int64_t n_tries, time_t since_s, const char *expected)
{
    const struct timespec moment = {0, 1000000};
    if (is_in_vain(n_tries, since_s)) {
        fprintf(stderr, "not within %d s: %s\n", PATIENCE_S, expected);
        exit(1);
    }
    (void)nanosleep(&moment, NULL);
}

#define WAIT_UNTIL(condition)                                                                      \
    do {                                                                                           \
        const time_t since_s = seconds_now();                                                      \
        for (int64_t n_tries = 0; !(condition); n_tries++)                                         \
            wait_a_moment(n_tries, since_s, #condition);                                           \
    } while (0)

/* Pages of a range that are cached, by a mapping: a read, even one that does not wait, makes the
 * kernel read ahead. A page that is still being read does not count. */
static inline int64_t pages_cached(int fd, int64_t offset, int64_t n)
{
    const int64_t page = sysconf(_SC_PAGESIZE), begin = offset / page * page;
    const size_t length = (size_t)(offset + n - begin);
    const size_t n_pages = (length + (size_t)page - 1) / (size_t)page;
    int64_t found = 0;
    if (n == 0) return 0;
    void *mapped = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, (off_t)begin);
    unsigned char *state = malloc(n_pages);
    CHECK(mapped != MAP_FAILED && state != NULL);
    /* The system call itself: a test may count the calls of the library's function. */
    CHECK(syscall(SYS_mincore, mapped, length, state) == 0);
    for (size_t i = 0; i < n_pages; i++)
        found += state[i] & 1;
    free(state);
    CHECK(munmap(mapped, length) == 0);
    return found;
}

static inline int64_t file_bytes(int fd)
{
    struct stat found;
    CHECK(fstat(fd, &found) == 0);
    return found.st_size;
}

/* Pages of a file that are in the page cache or on their way into it; -1: this kernel cannot say.
 */
static inline int64_t pages_arriving(int fd)
{
    struct {
        uint64_t offset, length;
    } range = {0, 0};
    struct {
        uint64_t cached, dirty, in_writeback, evicted, recently_evicted;
    } found = {0, 0, 0, 0, 0};
    const int saved_errno = errno;
    const long status = syscall(__NR_cachestat, fd, &range, &found, 0);
    errno = saved_errno;
    return status == 0 ? (int64_t)found.cached : -1;
}

/* What the kernel reads ahead would come into the cache later: waited for, where it cannot be
 * counted, by a read of the whole file. */
static inline int is_dropped(int fd)
{
    static char skipped[1 << 16];
    const int64_t arriving = pages_arriving(fd);
    if (arriving < 0)
        for (int64_t at = 0; pread(fd, skipped, sizeof skipped, (off_t)at) > 0;)
            at += (int64_t)sizeof skipped;
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    return pages_arriving(fd) <= 0 && pages_cached(fd, 0, file_bytes(fd)) == 0;
}

/* Drop all of a file from the page cache. The kernel keeps pages that are being read or written, or
 * that another processor is about to list: repeated until none is left. */
static inline void make_cold(int fd)
{
    CHECK(fsync(fd) == 0);
    WAIT_UNTIL(is_dropped(fd));
}

static inline int is_loaded(int fd, int64_t offset, int64_t n)
{
    static char skipped[1 << 16];
    for (int64_t at = offset; at < offset + n; at += (int64_t)sizeof skipped) {
        const int64_t left = offset + n - at;
        const size_t length = left < (int64_t)sizeof skipped ? (size_t)left : sizeof skipped;
        CHECK(pread(fd, skipped, length, (off_t)at) == (ssize_t)length);
    }
    const int64_t page = sysconf(_SC_PAGESIZE);
    return pages_cached(fd, offset, n) == (offset + n - 1) / page - offset / page + 1;
}

/* Read a range, one byte at least, until all of it is cached. */
static inline void make_warm(int fd, int64_t offset, int64_t n)
{
    WAIT_UNTIL(is_loaded(fd, offset, n));
}

/* Whether the file system of a directory gives pages back: one in memory does not. */
static inline int gives_pages_back(const char *directory)
{
    char path[128], page[4096] = "written";
    CHECK(snprintf(path, sizeof path, "%s/sds-test-XXXXXX", directory) < (int)sizeof path);
    const int fd = mkstemp(path);
    if (fd < 0) return 0;
    int found = 0;
    CHECK(unlink(path) == 0 && write(fd, page, sizeof page) == sizeof page);
    (void)fsync(fd);
    for (int i = 0; i < 1000 && !found; i++) {
        const struct timespec moment = {0, 1000000};
        found = is_dropped(fd);
        if (!found) (void)nanosleep(&moment, NULL);
    }
    CHECK(close(fd) == 0);
    return found;
}

/* Directory for files of tests, and whether they can be cold: the current directory, or one beside
 * where that is in memory. */
typedef struct test_directory {
    const char *path;
    int gives_pages_back;
} test_directory;

static inline test_directory find_directory(void)
{
    static const char *const places[] = {".", "/var/tmp", "/tmp"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (gives_pages_back(places[i])) return (test_directory){places[i], 1};
    return (test_directory){".", 0};
}

/* Status for the end of main, where nothing failed. */
static inline int status_of(test_directory directory)
{
    if (directory.gives_pages_back) return 0;
    printf("cold reads are left out: the current directory, /var/tmp and /tmp are in memory\n");
    return EXIT_LEFT_OUT;
}

/* Create a file in a directory, and return its descriptor and its path, which has room for 128. */
static inline int create_file(test_directory directory, char *path)
{
    CHECK(snprintf(path, 128, "%s/sds-test-XXXXXX", directory.path) < 128);
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    return fd;
}

#endif
