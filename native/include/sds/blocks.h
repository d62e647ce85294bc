/* Blocks of a contiguous replica, checked against the checksums behind its end (sds/trailer.h).
 *
 * The checksums are read with the first need. Of a replica of an older format, which has none
 * there, no block is checked. A check takes the time of reading a block, cached or not, and of its
 * CRC-32C. Several threads may use one object at once, and a child after fork. */
#ifndef SDS_BLOCKS_H
#define SDS_BLOCKS_H

#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a block of a dataset of n bytes: 1 MiB, doubled until there are at most 65536. */
int64_t sds_block_bytes(int64_t n_bytes);

typedef enum sds_block_checks {
    /* A random block of what a read asks for, once 8 blocks were asked for in all, and again with
     * every further 256. */
    SDS_BLOCKS_SAMPLED,
    SDS_BLOCKS_SAMPLED_SOON, /* so, but the first once one block was asked for */
    SDS_BLOCKS_ALL           /* each block before the first read of it */
} sds_block_checks;

typedef struct sds_blocks sds_blocks;

/* data: the elements in the replica's file. SDS_ENOMEM. */
sds_status sds_blocks_new(int64_t data_offset_bytes, int64_t data_bytes, sds_block_checks checks,
                          sds_blocks **out);
void sds_blocks_free(sds_blocks *blocks); /* NULL: nothing */

/* Read the checksums now. SDS_EFORMAT: the replica has none that blocks could be checked with;
 * SDS_EIO, SDS_ENOMEM. */
sds_status sds_blocks_load(sds_blocks *blocks, int fd);

/* Number of a block that was found damaged; -1: none was. */
int64_t sds_blocks_damaged(const sds_blocks *blocks);

#ifdef __cplusplus
}
#endif
#endif
