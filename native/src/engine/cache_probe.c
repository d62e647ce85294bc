#include "cache_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "arithmetic.h"

#define MAX_PROBES 8
#define FEW_PROBES 3
/* Long pieces may be cached in part: one probe covers this many bytes. */
#define PROBED_BYTES (INT64_C(1) << 20)

/* cachestat(2) would tell of a range in one call. It is not asked: since it gives away what others
 * read, newer kernels refuse it for files that the caller may not write, and filters of system
 * calls older than it (6.5) may kill who makes it. A byte that is read has no such strings. */
sds_cache sds__probe_byte(const sds_file *file, int64_t offset)
{
    const int saved_errno = errno;
    uint8_t byte;
    const struct iovec to = {&byte, 1};
    ssize_t got;
    do
        got = preadv2(file->fd, &to, 1, (off_t)offset, RWF_NOWAIT);
    while (got < 0 && errno == EINTR);
    const int error = errno;
    errno = saved_errno;
    if (got > 0) return SDS_CACHE_WARM;
    if (got < 0 && error == EAGAIN) return SDS_CACHE_COLD;
    return SDS_CACHE_UNKNOWN;
}

static int is_in_memory(const sds_file *file)
{
    struct statfs found;
    const int saved_errno = errno;
    const int is_known = fstatfs(file->fd, &found) == 0;
    errno = saved_errno;
    return is_known && (found.f_type == TMPFS_MAGIC || found.f_type == RAMFS_MAGIC);
}

/* Looks at n bytes spread over a piece from one on. */
static sds_cache probe_piece(const sds_file *file, const sds__access *access, int64_t piece,
                             int64_t begin, int n)
{
    const int64_t offset = sds__piece_offset(access, piece);
    const int64_t last = sds__piece_bytes(access, piece) - 1;
    sds_cache found = SDS_CACHE_WARM;
    for (int i = 0; i < n && found == SDS_CACHE_WARM; i++)
        found = sds__probe_byte(file, offset + begin + (last - begin) / n * i);
    return found;
}

static sds_cache probe(const sds_file *file, const sds__access *access, const sds__place *place,
                       int64_t most)
{
    const int64_t left = sds__access_pieces(access) - place->piece;
    if (left <= 0) return SDS_CACHE_WARM;
    const int64_t first_bytes = sds__piece_bytes(access, place->piece) - place->bytes;
    const int64_t looks = sds__least(1 + first_bytes / PROBED_BYTES, most);
    sds_cache found = probe_piece(file, access, place->piece, place->bytes, (int)looks);
    /* Of few pieces one, of many eight: not a large part of what reading them costs. */
    const int64_t n = sds__least(left / 4, most - looks);
    for (int64_t i = 1; i <= n && found == SDS_CACHE_WARM; i++)
        found = probe_piece(file, access, place->piece + (left - 1) / n * i, 0, 1);
    if (found == SDS_CACHE_UNKNOWN && is_in_memory(file)) return SDS_CACHE_WARM;
    return found;
}

sds_cache sds__probe_access(const sds_file *file, const sds__access *access,
                            const sds__place *place)
{
    return probe(file, access, place, MAX_PROBES);
}

sds_cache sds__probe_again(const sds_file *file, const sds__access *access, const sds__place *place)
{
    return probe(file, access, place, FEW_PROBES);
}

int64_t sds__cache_room_bytes(void)
{
    static const char name[] = "MemAvailable:";
    char text[512];
    const int saved_errno = errno;
    const int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) (void)close(fd);
    errno = saved_errno;
    text[n > 0 ? n : 0] = '\0';
    const char *found = strstr(text, name);
    const int64_t kib = found != NULL ? strtoll(found + sizeof name - 1, NULL, 10) : 0;
    return kib > 0 && kib < INT64_MAX / 1024 ? kib * 1024 : INT64_MAX;
}
