#include "memory_limit.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "control_group.h"

/* Of the memory that the process may use, this part may be resident pages of our mappings. They
 * are no memory of its own, the page cache holds them anyway; but batch systems count them. */
#define MAPPED_PART 8

/* The smallest limit of a group and of those around it. */
static void least_memory(char *path, int is_v2, void *context)
{
    int64_t *least = context, limit;
    const char *file = is_v2 ? "memory.max" : "memory.limit_in_bytes";
    if (sds__number_of_group(path, file, &limit) && limit > 0 && limit < *least) *least = limit;
}

static int64_t find_limit(void)
{
    int64_t least = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    struct rlimit resident; /* nothing to the kernel, but batch systems set it */
    if (least <= 0) least = INT64_MAX;
    if (getrlimit(RLIMIT_RSS, &resident) == 0 && resident.rlim_cur < (rlim_t)least)
        least = (int64_t)resident.rlim_cur;
    sds__each_group(SDS_GROUPS_FILE, SDS_GROUPS_MOUNT, "memory", least_memory, &least);
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
    if (sds__read_text("/proc/self/statm", text, sizeof text) == 0 ||
        sscanf(text, "%ld %ld %ld", &size, &resident, &shared) != 3)
        return -1;
    return (int64_t)shared * sysconf(_SC_PAGESIZE);
}
