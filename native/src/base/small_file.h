/* Small files that are taken into memory whole: what was checked is what is used. Internal. */
#ifndef SDS_SRC_SMALL_FILE_H
#define SDS_SRC_SMALL_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "sds/status.h"

typedef struct sds__small_file {
    uint8_t *bytes; /* released with free() */
    size_t n;
    uint32_t owner;
    uint32_t mode;
} sds__small_file;

/* SDS_EIO (errno), SDS_EFORMAT: no regular file or a larger one, SDS_ENOMEM. */
sds_status sds__small_file_read(const char *path, size_t max_bytes, sds__small_file *out);

#endif
