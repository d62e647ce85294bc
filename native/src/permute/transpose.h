/* Transposition of one tile that fits the first-level cache. */
#ifndef SDS_SRC_TRANSPOSE_H
#define SDS_SRC_TRANSPOSE_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"

/* Runs of blocks have two axes each (see sds_hyperslab). */
#define SDS__COPY_MAX_RANK (2 * SDS_MAX_RANK)

/* Element (row, column) lies at row * src_row_stride + column * element_bytes in the source and at
 * column * dst_column_stride + row * element_bytes in the destination. */
typedef struct sds__tile {
    int64_t n_rows;
    int64_t n_columns;
    int64_t src_row_stride;
    int64_t dst_column_stride;
} sds__tile;

/* Of the processor's cache. */
#define SDS__TRANSPOSE_LINE 64
/* Room for the largest tile, to begin at a line. */
#define SDS__TRANSPOSE_BYTES (40 << 10)

/* Largest number of rows and columns of a tile; 0 where tiles do not pay. */
int64_t sds__transpose_edge(size_t element_bytes);

void sds__transpose_tile(const sds__tile *tile, size_t element_bytes, const uint8_t *src,
                         uint8_t *dst, uint8_t *buffer);

#endif
