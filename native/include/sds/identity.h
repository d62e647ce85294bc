/* Which file this is, and whether it is still the same: inode, size, mtime and ctime. */
#ifndef SDS_IDENTITY_H
#define SDS_IDENTITY_H

#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sds_identity {
    uint64_t inode;
    int64_t size_bytes;
    int64_t mtime_ns;
    int64_t ctime_ns;
} sds_identity;

/* Of the result of a stat(2). */
struct stat;
void sds_identity_of_stat(const struct stat *from, sds_identity *out);

/* stat(2) of the path; SDS_EIO with errno where it fails. uid and mode may be NULL. */
sds_status sds_identity_of_path(const char *path, sds_identity *out, uint32_t *uid, uint32_t *mode);
sds_status sds_identity_of_fd(int fd, sds_identity *out, uint32_t *uid, uint32_t *mode);

/* 1 where all four agree. */
int sds_identity_equal(const sds_identity *a, const sds_identity *b);

#ifdef __cplusplus
}
#endif
#endif
