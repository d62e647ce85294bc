/* Arrays of SDS's own behind the end of a replica's HDF5 file.
 *
 * Bytes. Little-endian. From the end of the HDF5 file (the end-of-file address of its superblock)
 * on, padded with zeros to a multiple of 8: the arrays, each padded likewise; an entry for each;
 * and the last 16 bytes of the file:
 *
 *     entry, 32 bytes: char[16] name, filled up with zeros; i64 offset in the file; i64 bytes
 *     end, 16 bytes: i64 number of entries, 1 to 16; char[8] "SDSTRAIL"
 *
 * Which arrays there are, and of what: docs/reference/replica-format.md. */
#ifndef SDS_TRAILER_H
#define SDS_TRAILER_H

#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SDS_TRAILER_MAX_ENTRIES 16
#define SDS_TRAILER_NAME_BYTES 16

typedef struct sds_trailer_entry {
    char name[SDS_TRAILER_NAME_BYTES];
    int64_t offset_bytes;
    int64_t size_bytes;
} sds_trailer_entry;

typedef struct sds_trailer {
    int64_t n_entries;
    sds_trailer_entry entries[SDS_TRAILER_MAX_ENTRIES];
} sds_trailer;

/* SDS_EIO: errno is set; SDS_EFORMAT: the file does not end with a trailer, or its entries reach
 * beyond it. */
sds_status sds_trailer_read(int fd, sds_trailer *out);

/* NULL where there is no such array. */
const sds_trailer_entry *sds_trailer_find(const sds_trailer *trailer, const char *name);

#ifdef __cplusplus
}
#endif
#endif
