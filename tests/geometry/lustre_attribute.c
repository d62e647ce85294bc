/* Stands before the C library's getxattr: "lustre.lov" of any file is what a file holds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static ssize_t answer(void *value, size_t size)
{
    const char *path = getenv("TEST_LUSTRE_LOV");
    const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        errno = ENODATA;
        return -1;
    }
    const off_t length = lseek(fd, 0, SEEK_END);
    ssize_t n = length;
    if (size > 0 && (size_t)length > size) {
        errno = ERANGE;
        n = -1;
    } else if (size > 0) {
        n = pread(fd, value, size, 0);
    }
    close(fd);
    return n;
}

ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
    if (strcmp(name, "lustre.lov") == 0) return answer(value, size);
    ssize_t (*next)(const char *, const char *, void *, size_t) = dlsym(RTLD_NEXT, "getxattr");
    return next(path, name, value, size);
}
