/* The check of what a read asks for. Internal. */
#ifndef SDS_BLOCK_CHECK_H
#define SDS_BLOCK_CHECK_H

#include "pieces.h"
#include "sds/blocks.h"

/* Check what is due before a read of the file. SDS_EFORMAT: a block is damaged, now or before, or
 * all are to be checked and there are no checksums. Otherwise as reading the file. The access is
 * not empty. */
sds_status sds__check_blocks(sds_blocks *blocks, int fd, const sds__access *access,
                             int64_t bytes_useful);

#endif
