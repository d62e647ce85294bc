#include "sds/write_runs.h"

#include <errno.h>
#include <unistd.h>

static sds_status write_all(int fd, const uint8_t *bytes, size_t n, int64_t offset)
{
    while (n > 0) {
        const ssize_t written = pwrite(fd, bytes, n, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return SDS_EIO;
        bytes += written;
        offset += written;
        n -= (size_t)written;
    }
    return SDS_OK;
}

sds_status sds_write_runs(int fd, int64_t base, size_t n, const int64_t offsets[], size_t run_bytes,
                          const void *bytes)
{
    if (base < 0) return SDS_EBOUNDS;
    if (run_bytes > (size_t)(INT64_MAX - base)) return SDS_EOVERFLOW;
    const int64_t last = INT64_MAX - base - (int64_t)run_bytes;
    for (size_t i = 0; i < n; i++) {
        if (offsets[i] < 0) return SDS_EBOUNDS;
        if (offsets[i] > last) return SDS_EOVERFLOW;
    }
    const uint8_t *from = bytes;
    for (size_t i = 0; i < n; i++) {
        const sds_status status = write_all(fd, from + i * run_bytes, run_bytes, base + offsets[i]);
        if (status != SDS_OK) return status;
    }
    return SDS_OK;
}
