#include "file_read.h"

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

sds_status sds__read_all(int fd, void *out, int64_t n, int64_t offset)
{
    uint8_t *at = out;
    while (n > 0) {
        /* Linux reads at most 2 GiB at a time. */
        const ssize_t got = pread(fd, at, (size_t)n, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return SDS_EIO;
        if (got == 0) return SDS_ESHORT;
        at += got;
        offset += got;
        n -= got;
    }
    return SDS_OK;
}
