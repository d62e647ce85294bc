/* What is done about bytes that the page cache does not hold, while the device works. Internal. */
#ifndef SDS_READ_AHEAD_H
#define SDS_READ_AHEAD_H

#include <stdint.h>

#include "sds/status.h"

/* Have the kernel begin to read a range into the page cache. Only a hint. */
void sds__announce(int fd, int64_t offset, int64_t n);

/* The same where the page cache does not hold its beginning, and it is worth a look. */
void sds__announce_missing(int fd, int64_t offset, int64_t n);

/* Have all pages of memory made that is about to be written. Only a hint: changes nothing of what
 * the memory holds. */
void sds__make_pages(void *memory, int64_t n);

/* Read one short range into one place: as sds__read_all(), but what is not cached is announced, and
 * its memory made meanwhile. *was_missing: whether the last such read of the file found any of it
 * missing; threads may share it. */
sds_status sds__read_range(int fd, void *out, int64_t n, int64_t offset, int32_t *was_missing);

#endif
