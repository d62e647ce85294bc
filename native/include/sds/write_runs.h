/* Writes packed runs of bytes to their places in a file. */
#ifndef SDS_WRITE_RUNS_H
#define SDS_WRITE_RUNS_H

#include <stddef.h>
#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Write run i, bytes [i * run_bytes, (i + 1) * run_bytes) of the input, at file byte
 * base + offsets[i], for all n runs. Retries EINTR and short writes.
 * SDS_EBOUNDS: an offset is negative, nothing was written; SDS_EOVERFLOW: a run ends beyond 2^63,
 * likewise; SDS_EIO: errno is set (ENOSPC where the disk is full), some may be written. */
sds_status sds_write_runs(int fd, int64_t base, size_t n, const int64_t offsets[], size_t run_bytes,
                          const void *bytes);

#ifdef __cplusplus
}
#endif
#endif
