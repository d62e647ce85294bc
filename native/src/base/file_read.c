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

/* What the cache does not hold, and what file systems and kernels say that do not know. */
static int is_not_cached(int error)
{
    return error == EAGAIN || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

sds_status sds__read_cached(int fd, void *out, int64_t n, int64_t offset, int64_t *got)
{
    const int saved_errno = errno;
    *got = 0;
    while (*got < n) {
        const struct iovec to = {(uint8_t *)out + *got, (size_t)(n - *got)};
        const ssize_t more = preadv2(fd, &to, 1, (off_t)(offset + *got), RWF_NOWAIT);
        if (more > 0) {
            *got += more;
            continue;
        }
        if (more < 0 && errno == EINTR) continue;
        if (more < 0 && !is_not_cached(errno)) return SDS_EIO;
        errno = saved_errno;
        break;
    }
    return SDS_OK;
}

sds_status sds__read_vectors(int fd, struct iovec *vectors, int n_vectors, int64_t offset,
                             int may_wait, int *only_cached)
{
    const int saved_errno = errno;
    while (n_vectors > 0) {
        ssize_t got = *only_cached ? preadv2(fd, vectors, n_vectors, (off_t)offset, RWF_NOWAIT)
                                   : preadv(fd, vectors, n_vectors, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && *only_cached && is_not_cached(errno)) {
            errno = saved_errno;
            *only_cached = 0;
            if (!may_wait) return SDS_ENOENT;
            continue;
        }
        if (got < 0) return SDS_EIO;
        if (got == 0) return SDS_ESHORT;
        offset += got;
        while (n_vectors > 0 && (size_t)got >= vectors->iov_len) {
            got -= (ssize_t)vectors->iov_len;
            vectors++;
            n_vectors--;
        }
        if (got > 0) {
            vectors->iov_base = (uint8_t *)vectors->iov_base + got;
            vectors->iov_len -= (size_t)got;
        }
    }
    return SDS_OK;
}
