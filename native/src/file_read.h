/* What the readers of replicas share. Internal. */
#ifndef SDS_FILE_READ_H
#define SDS_FILE_READ_H

#include <stdint.h>
#include <time.h>

#include "sds/status.h"

/* Measured on a virtual disk: with a warm cache, reading a gap away is
 * cheaper than another call up to strides of about 8 KiB; with a cold one, up to 16 to 32 KiB. A
 * small buffer stays in the second-level cache and beats a large one at every stride. */
#define SDS__MAX_GAP_BYTES (16 << 10)
#define SDS__SIEVE_BUFFER_BYTES (256 << 10)

/* Single requests that took longer than this, and than 4 bytes a nanosecond, came from the disk:
 * those that follow are announced, so that it works on several at a time. Announcing what the cache
 * holds costs a third of a microsecond a request, which is why the first must have been slow. */
#define SDS__SLOW_READ_NS 25000
#define SDS__MAX_ANNOUNCED 256
#define SDS__MAX_ANNOUNCED_BYTES (4 << 20)

static inline int64_t sds__monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whether n bytes that took so long came from the disk. */
static inline int sds__is_slow(int64_t begin_ns, int64_t n)
{
    return sds__monotonic_ns() - begin_ns > SDS__SLOW_READ_NS + n / 4;
}

/* Read n bytes, in as many calls as it takes. */
sds_status sds__read_all(int fd, void *out, int64_t n, int64_t offset);

#endif
