/* Preloaded into programs under test: makes system calls and allocations fail at chosen moments.
 *
 * The program itself arms a fault (through ctypes) and asks how often it struck. Calls on files are
 * told by a part of the path, allocations by the library that makes them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { SHORT = -1, SLOW = -2 }; /* instead of an error number */

static struct {
    char calls[64]; /* names, each with a space behind it */
    char part[256]; /* of the path */
    int error;
    long spared_bytes[2]; /* sizes of allocations that do not fail */
} fault;
static _Atomic long to_come; /* calls before the first that fails */
static _Atomic long left;    /* calls that are still to fail */
static _Atomic long struck;

/* calls: names, each with a space behind it. error: a number, or SHORT, or SLOW. */
EXPORT void fault_arm(const char *calls, const char *part, long after, long n, int error);
EXPORT void fault_spare(long one, long other);
EXPORT long fault_disarm(void);
EXPORT long fault_count(void);

void fault_arm(const char *calls, const char *part, long after, long n, int error)
{
    snprintf(fault.calls, sizeof fault.calls, "%s", calls);
    snprintf(fault.part, sizeof fault.part, "%s", part);
    fault.error = error;
    to_come = after;
    struck = 0;
    left = n;
}

void fault_spare(long one, long other)
{
    fault.spared_bytes[0] = one;
    fault.spared_bytes[1] = other;
}

/* How often it struck. */
long fault_disarm(void)
{
    left = 0;
    return struck;
}

/* The same, while it goes on. */
long fault_count(void)
{
    return struck;
}

static int is_armed(const char *call)
{
    char name[32];
    if (left <= 0) return 0;
    snprintf(name, sizeof name, "%s ", call);
    return strstr(fault.calls, name) != NULL;
}

static int strikes(void)
{
    if (to_come-- > 0) return 0;
    if (left-- <= 0) return 0;
    struck++;
    return 1;
}

static int is_path(const char *path)
{
    return path != NULL && strstr(path, fault.part) != NULL;
}

static int is_file(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = '\0';
    return is_path(path);
}

/* 1 where the call is to fail with errno set, or to be short. */
static int hits(const char *call, int fd)
{
    const int saved_errno = errno;
    const int hit = is_armed(call) && is_file(fd) && strikes();
    errno = saved_errno;
    if (!hit) return 0;
    if (fault.error == SLOW) {
        const struct timespec pause = {0, 50000000};
        nanosleep(&pause, NULL);
        return 0;
    }
    if (fault.error > 0) errno = fault.error;
    return 1;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static size_t part_of(size_t n)
{
    return n > 1 ? n / 2 : n;
}

#define READ_AT(name)                                                                              \
    EXPORT ssize_t name(int fd, void *out, size_t n, off_t offset)                                 \
    {                                                                                              \
        ssize_t (*real)(int, void *, size_t, off_t) = next(#name);                                 \
        if (!hits("pread", fd)) return real(fd, out, n, offset);                                   \
        return fault.error == SHORT ? real(fd, out, part_of(n), offset) : -1;                      \
    }
READ_AT(pread)
READ_AT(pread64)

#define READ_VECTOR(name)                                                                          \
    EXPORT ssize_t name(int fd, const struct iovec *to, int n, off_t offset)                       \
    {                                                                                              \
        ssize_t (*real)(int, const struct iovec *, int, off_t) = next(#name);                      \
        if (!hits("preadv", fd)) return real(fd, to, n, offset);                                   \
        if (fault.error != SHORT) return -1;                                                       \
        const struct iovec first = {to[0].iov_base, part_of(to[0].iov_len)};                       \
        return real(fd, &first, 1, offset);                                                        \
    }
READ_VECTOR(preadv)
READ_VECTOR(preadv64)

/* These read what the page cache holds, which EAGAIN says of the rest; single bytes are read to
 * find out. */
#define READ_CACHED(name)                                                                          \
    EXPORT ssize_t name(int fd, const struct iovec *to, int n, off_t offset, int flags)            \
    {                                                                                              \
        ssize_t (*real)(int, const struct iovec *, int, off_t, int) = next(#name);                 \
        if (to[0].iov_len == 1 || fault.error == EAGAIN || !hits("preadv", fd))                    \
            return real(fd, to, n, offset, flags);                                                 \
        if (fault.error != SHORT) return -1;                                                       \
        const struct iovec first = {to[0].iov_base, part_of(to[0].iov_len)};                       \
        return real(fd, &first, 1, offset, flags);                                                 \
    }
READ_CACHED(preadv2)
READ_CACHED(preadv64v2)

/* Where FAULTS_NO_RING is set, there is no io_uring: its requests are no calls that could fail
 * here; those of threads are. */
EXPORT long syscall(long number, ...)
{
    long (*real)(long, ...) = next("syscall");
    long given[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        given[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_io_uring_setup && getenv("FAULTS_NO_RING") != NULL) {
        errno = ENOSYS;
        return -1;
    }
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

EXPORT ssize_t read(int fd, void *out, size_t n)
{
    ssize_t (*real)(int, void *, size_t) = next("read");
    if (!hits("read", fd)) return real(fd, out, n);
    return fault.error == SHORT ? real(fd, out, part_of(n)) : -1;
}

EXPORT ssize_t write(int fd, const void *from, size_t n)
{
    ssize_t (*real)(int, const void *, size_t) = next("write");
    if (!hits("write", fd)) return real(fd, from, n);
    return fault.error == SHORT ? real(fd, from, part_of(n)) : -1;
}

EXPORT int fstat(int fd, struct stat *out)
{
    int (*real)(int, struct stat *) = next("fstat");
    return hits("fstat", fd) ? -1 : real(fd, out);
}

EXPORT int stat(const char *path, struct stat *out)
{
    int (*real)(const char *, struct stat *) = next("stat");
    if (is_armed("stat") && is_path(path) && strikes()) {
        errno = fault.error;
        return -1;
    }
    return real(path, out);
}

/* As they were called before glibc 2.33, and as the connector calls them. */
EXPORT int __fxstat(int version, int fd, struct stat *out);
EXPORT int __xstat(int version, const char *path, struct stat *out);

EXPORT int __fxstat(int version, int fd, struct stat *out)
{
    (void)version;
    return fstat(fd, out);
}

EXPORT int __xstat(int version, const char *path, struct stat *out)
{
    (void)version;
    return stat(path, out);
}

#define OPEN(name)                                                                                 \
    EXPORT int name(const char *path, int flags, ...)                                              \
    {                                                                                              \
        int (*real)(const char *, int, ...) = next(#name);                                         \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0;                    \
        va_end(list);                                                                              \
        if (is_armed("open") && is_path(path) && strikes()) {                                      \
            errno = fault.error;                                                                   \
            return -1;                                                                             \
        }                                                                                          \
        return real(path, flags, mode);                                                            \
    }
OPEN(open)
OPEN(open64)

/* Allocations of the library whose name holds the part, by itself or through these functions. */
static int starves(const void *caller, size_t bytes)
{
    Dl_info where;
    return is_armed("malloc") && (long)bytes != fault.spared_bytes[0] &&
           (long)bytes != fault.spared_bytes[1] && dladdr(caller, &where) &&
           is_path(where.dli_fname) && strikes();
}

#define STARVES(bytes) starves(__builtin_return_address(0), bytes)

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t n);
extern void *__libc_memalign(size_t alignment, size_t n);

static void *exhausted(void)
{
    errno = ENOMEM;
    return NULL;
}

EXPORT void *malloc(size_t n)
{
    return STARVES(n) ? exhausted() : __libc_malloc(n);
}
EXPORT void *calloc(size_t n, size_t bytes)
{
    return STARVES(n * bytes) ? exhausted() : __libc_calloc(n, bytes);
}
EXPORT void *realloc(void *old, size_t n)
{
    return STARVES(n) ? exhausted() : __libc_realloc(old, n);
}
EXPORT void *aligned_alloc(size_t alignment, size_t n)
{
    return STARVES(n) ? exhausted() : __libc_memalign(alignment, n);
}
EXPORT char *strdup(const char *text)
{
    const size_t n = strlen(text) + 1;
    char *copy = STARVES(n) ? exhausted() : __libc_malloc(n);
    return copy == NULL ? NULL : memcpy(copy, text, n);
}
EXPORT int asprintf(char **out, const char *format, ...)
{
    if (STARVES(1)) {
        errno = ENOMEM;
        return -1;
    }
    va_list list;
    va_start(list, format);
    const int n = vasprintf(out, format, list);
    va_end(list);
    return n;
}
EXPORT char *realpath(const char *name, char *out)
{
    char *(*real)(const char *, char *) = dlvsym(RTLD_NEXT, "realpath", "GLIBC_2.3");
    return out == NULL && STARVES(1) ? exhausted() : real(name, out);
}
EXPORT void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    void *(*real)(void *, size_t, int, int, int, off_t) = next("mmap");
    if (!STARVES(n)) return real(at, n, protection, flags, fd, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}
/* A library looks up another one, and takes its time. */
EXPORT void *dlopen(const char *name, int flags)
{
    void *(*real)(const char *, int) = next("dlopen");
    Dl_info where;
    if ((flags & RTLD_NOLOAD) && is_armed("dlopen") &&
        dladdr(__builtin_return_address(0), &where) && is_path(where.dli_fname) && strikes()) {
        const struct timespec pause = {1, 0};
        nanosleep(&pause, NULL);
    }
    return real(name, flags);
}
