/* Before glibc 2.33, stat, fstat and lstat were no functions of the library, but calls of these,
 * which it still has. C++ headers refer to what says whether there is one thread, since 2.32. */
#include "old_glibc.h"

#if defined(SDS__FIRST_GLIBC) && __GLIBC_PREREQ(2, 33)
#include <sys/stat.h>

#ifdef __aarch64__
enum { stat_version = 0 };
#else
enum { stat_version = 1 };
#endif

SDS__OLD(__xstat);
SDS__OLD(__fxstat);
SDS__OLD(__lxstat);
int __xstat(int version, const char *path, struct stat *found);
int __fxstat(int version, int fd, struct stat *found);
int __lxstat(int version, const char *path, struct stat *found);

int stat(const char *restrict path, struct stat *restrict found)
{
    return __xstat(stat_version, path, found);
}

int fstat(int fd, struct stat *found)
{
    return __fxstat(stat_version, fd, found);
}

int lstat(const char *restrict path, struct stat *restrict found)
{
    return __lxstat(stat_version, path, found);
}

/* The same on the machines above, where files of any size are the only ones. */
int stat64(const char *restrict path, struct stat64 *restrict found)
{
    return stat(path, (struct stat *)found);
}

int fstat64(int fd, struct stat64 *found)
{
    return fstat(fd, (struct stat *)found);
}

char __libc_single_threaded; /* 0: there may be several */
#endif
