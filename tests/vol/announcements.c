/* Preloaded: appends each range that is announced by POSIX_FADV_WILLNEED of a file named by
 * ANNOUNCED_FILE to the file ANNOUNCEMENTS, as a line "offset length", and has it announced. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef posix_fadvise
#undef posix_fadvise64

static int is_announced_file(int fd)
{
    char link[32], path[PATH_MAX];
    const char *named = getenv("ANNOUNCED_FILE");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path);
    return named && n == (ssize_t)strlen(named) && memcmp(path, named, (size_t)n) == 0;
}

static void append(off64_t offset, off64_t length)
{
    char line[64];
    const int n = snprintf(line, sizeof line, "%lld %lld\n", (long long)offset, (long long)length);
    const int log = open(getenv("ANNOUNCEMENTS"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log < 0 || write(log, line, (size_t)n) != n) abort();
    close(log);
}

int posix_fadvise64(int fd, off64_t offset, off64_t length, int advice)
{
    static int (*real)(int, off64_t, off64_t, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "posix_fadvise64");
    if (advice == POSIX_FADV_WILLNEED && is_announced_file(fd)) append(offset, length);
    return real(fd, offset, length, advice);
}

int posix_fadvise(int fd, off_t offset, off_t length, int advice)
{
    return posix_fadvise64(fd, offset, length, advice);
}
