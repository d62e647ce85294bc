#include "small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sds/identity.h"

/* Read until n bytes or the end of the file. */
static sds_status read_up_to(int fd, uint8_t *bytes, size_t n, size_t *n_read)
{
    size_t have = 0;
    while (have < n) {
        const ssize_t got = read(fd, bytes + have, n - have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return SDS_EIO;
        if (got == 0) break;
        have += (size_t)got;
    }
    *n_read = have;
    return SDS_OK;
}

static sds_status read_open(int fd, size_t max_bytes, sds__small_file *out)
{
    sds_identity identity;
    sds_status status = sds_identity_of_fd(fd, &identity, &out->owner, &out->mode);
    if (status != SDS_OK) return status;
    if (!S_ISREG(out->mode) || (uint64_t)identity.size_bytes > max_bytes) return SDS_EFORMAT;
    const size_t n = (size_t)identity.size_bytes;
    out->bytes = malloc(n > 0 ? n : 1);
    if (out->bytes == NULL) return SDS_ENOMEM;
    status = read_up_to(fd, out->bytes, n, &out->n);
    if (status != SDS_OK) free(out->bytes);
    return status;
}

sds_status sds__small_file_read(const char *path, size_t max_bytes, sds__small_file *out)
{
    /* O_NONBLOCK: a FIFO put in the file's place must not make a program wait. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return SDS_EIO;
    const sds_status status = read_open(fd, max_bytes, out);
    const int saved_errno = errno;
    close(fd);
    errno = saved_errno;
    return status;
}
