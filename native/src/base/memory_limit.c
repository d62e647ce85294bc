#include "memory_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Of the memory that the process may use, this part may be resident pages of our mappings. They
 * are no memory of its own, the page cache holds them anyway; but batch systems count them. */
#define MAPPED_PART 8

/* What a small file of /proc or /sys says; its length, 0: nothing. */
static size_t read_text(const char *path, char *text, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t got = read(fd, text, room - 1);
    close(fd);
    if (got <= 0) return 0;
    text[got] = 0;
    return (size_t)got;
}

/* The smallest limit of a group and of those around it. A container sees its group as the root,
 * where there is no file: the limit is then that of the mount. */
static int64_t least_of_groups(const char *mount, char *group, const char *file, int64_t least)
{
    for (;;) {
        char path[1024], text[64];
        const int n = snprintf(path, sizeof path, "%s%s/%s", mount, group, file);
        if (n > 0 && (size_t)n < sizeof path && read_text(path, text, sizeof text) > 0) {
            char *end;
            const long long limit = strtoll(text, &end, 10); /* "max": no number */
            if (end != text && limit > 0 && limit < least) least = limit;
        }
        char *last = strrchr(group, '/');
        if (last == NULL) return least;
        *last = 0;
    }
}

static int64_t find_limit(void)
{
    int64_t least = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    struct rlimit resident; /* nothing to the kernel, but batch systems set it */
    char text[8192];
    if (least <= 0) least = INT64_MAX;
    if (getrlimit(RLIMIT_RSS, &resident) == 0 && resident.rlim_cur < (rlim_t)least)
        least = (int64_t)resident.rlim_cur;
    if (read_text("/proc/self/cgroup", text, sizeof text) == 0) return least;
    /* Lines of hierarchy:controllers:group; 0:: is that of version 2. */
    char *next = text;
    for (char *line; (line = strsep(&next, "\n")) != NULL;) {
        const int is_v2 = strncmp(line, "0::", 3) == 0;
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = 0;
        if (is_v2)
            least = least_of_groups("/sys/fs/cgroup", group, "memory.max", least);
        else if (strstr(controllers, "memory") != NULL)
            least = least_of_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", least);
    }
    return least;
}

int64_t sds__memory_limit_bytes(void)
{
    static _Atomic int64_t found;
    int64_t limit = atomic_load_explicit(&found, memory_order_relaxed);
    if (limit == 0) {
        limit = find_limit();
        atomic_store_explicit(&found, limit, memory_order_relaxed);
    }
    return limit;
}

/* A whole number of bytes; anything else counts as if it were not set. */
static int64_t find_max_mapped(void)
{
    const char *set = secure_getenv("SDS_MMAP_BYTES");
    if (set != NULL && *set >= '0' && *set <= '9') {
        char *end;
        errno = 0;
        const long long bytes = strtoll(set, &end, 10);
        if (errno == 0 && *end == '\0') return bytes;
    }
    return sds__memory_limit_bytes() / MAPPED_PART;
}

int64_t sds__max_mapped_bytes(void)
{
    static _Atomic int64_t found = -1;
    int64_t most = atomic_load_explicit(&found, memory_order_relaxed);
    if (most < 0) {
        const int saved_errno = errno;
        most = find_max_mapped();
        errno = saved_errno;
        atomic_store_explicit(&found, most, memory_order_relaxed);
    }
    return most;
}

int64_t sds__resident_file_bytes(void)
{
    char text[128];
    long size, resident, shared;
    if (read_text("/proc/self/statm", text, sizeof text) == 0 ||
        sscanf(text, "%ld %ld %ld", &size, &resident, &shared) != 3)
        return -1;
    return (int64_t)shared * sysconf(_SC_PAGESIZE);
}
