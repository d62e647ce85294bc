/* Calls that read from a file, in as many as it takes. Internal. */
#ifndef SDS_FILE_READ_H
#define SDS_FILE_READ_H

#include <stdint.h>
#include <sys/uio.h>

#include "sds/status.h"

/* Read n bytes. */
sds_status sds__read_all(int fd, void *out, int64_t n, int64_t offset);

/* Read n bytes while the page cache holds them; *got: as far as it did. Where a file system cannot
 * tell, or the file ends: 0. */
sds_status sds__read_cached(int fd, void *out, int64_t n, int64_t offset, int64_t *got);

/* Fill vectors, which are used up. only_cached: 1: as long as the page cache holds what is read,
 * else set to 0; SDS_ENOENT then where it may not be waited for. */
sds_status sds__read_vectors(int fd, struct iovec *vectors, int n_vectors, int64_t offset,
                             int may_wait, int *only_cached);

#endif
