/* What was measured of file systems, for the programs that read from them.
 *
 * One file under SDS_HOME, written by the server after each calibration, replaced by atomic rename.
 * The engine reads by built-in figures where it is missing, damaged or of another version.
 *
 * Bytes. Little-endian; u32, u64: integers; f64: IEEE 754 binary64.
 *
 * Header, 32 bytes:
 *     0  char[8]  "SDSFILES"
 *     8  u32      version, 1; a reader refuses any other
 *    12  u32      CRC-32C of the whole file, these four bytes taken as zero
 *    16  u64      length of the file, bytes
 *    24  u32      number of file systems
 *    28  u32      f64 per file system: 31
 * Then, per file system, without padding:
 *     u64      kind: f_type of statfs(2)
 *     f64[31]  the members of sds_io_parameters in the order of io_model.h, without is_measured
 *     u32      length of the mount point, at most 4095
 *     char[]   the mount point: an absolute path, without NUL
 */
#ifndef SDS_MEASURED_FORMAT_H
#define SDS_MEASURED_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "sds/io_model.h"
#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SDS_MEASURED_VERSION 1
#define SDS_MEASURED_NAME "filesystems.sdsf" /* in SDS_HOME */

typedef struct sds_measured_filesystem {
    const char *mount_point; /* absolute */
    uint64_t kind;           /* f_type of statfs(2): another one may be mounted there elsewhere */
    sds_io_parameters parameters;
} sds_measured_filesystem;

/* *bytes is released with free(). SDS_EINVAL: a mount point that is no absolute path of at most
 * 4095 bytes, or parameters that are not valid. */
sds_status sds_measured_encode(size_t n, const sds_measured_filesystem filesystems[], void **bytes,
                               size_t *n_bytes);

typedef struct sds_measured sds_measured;

/* Read and check a file. SDS_EIO (errno; ENOENT: nothing was measured; ELOOP: a symbolic link),
 * SDS_EFORMAT, SDS_EVERSION, SDS_ENOMEM. Replacing or truncating the file later changes nothing. */
sds_status sds_measured_open(const char *path, sds_measured **out);
/* The same from bytes, which are copied. */
sds_status sds_measured_from_bytes(const void *bytes, size_t n, sds_measured **out);
void sds_measured_close(sds_measured *measured);

/* Owner and mode of the file as opened (0, 0 from bytes). */
uint32_t sds_measured_owner(const sds_measured *measured);
uint32_t sds_measured_mode(const sds_measured *measured);
size_t sds_measured_count(const sds_measured *measured);
/* i < count. The mount point lives as long as what was opened. */
void sds_measured_at(const sds_measured *measured, size_t i, sds_measured_filesystem *out);

/* Of the file systems of that kind, the one of the longest mount point that holds the canonical
 * path; NULL where none does. What is returned lives as long as what was opened. */
const sds_io_parameters *sds_measured_find(const sds_measured *measured, const char *canonical_path,
                                           uint64_t kind);

#ifdef __cplusplus
}
#endif
#endif
