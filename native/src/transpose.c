#include "transpose.h"

#include <string.h>

/* A tile goes through a buffer in the first-level cache: rows come from the source whole and go to
 * the destination whole, so that no cache line of either is visited twice. Strides of a power of
 * two, usual in arrays, would otherwise put a tile's rows into a few sets of the cache; for the
 * same reason the buffer's rows are a cache line longer than they need to be. */
enum { EDGE = 64, LINE = 64, BUFFER_BYTES = 40 << 10 };

int64_t sds__transpose_edge(size_t element_bytes)
{
    if (element_bytes <= 8) return EDGE;
    if (element_bytes <= 16) return EDGE / 2;
    /* From here a row of a tile is so few elements that copying them one by one is as fast. */
    if (element_bytes <= 64) return 16;
    return 0;
}

static inline __attribute__((always_inline)) void transpose(const sds__tile *tile,
                                                            size_t element_bytes, size_t pitch,
                                                            const uint8_t *src, uint8_t *buffer)
{
    for (int64_t row = 0; row < tile->n_rows; row++) {
        const uint8_t *from = src + row * tile->src_row_stride;
        uint8_t *to = buffer + (size_t)row * element_bytes;
        for (int64_t column = 0; column < tile->n_columns; column++)
            memcpy(to + (size_t)column * pitch, from + (size_t)column * element_bytes,
                   element_bytes);
    }
}

void sds__transpose_tile(const sds__tile *tile, size_t element_bytes, const uint8_t *src,
                         uint8_t *dst)
{
    _Alignas(LINE) uint8_t buffer[BUFFER_BYTES];
    const size_t edge = (size_t)sds__transpose_edge(element_bytes);
    const size_t pitch = edge * element_bytes + LINE;
    switch (element_bytes) {
    case 1:
        transpose(tile, 1, EDGE * 1 + LINE, src, buffer);
        break;
    case 2:
        transpose(tile, 2, EDGE * 2 + LINE, src, buffer);
        break;
    case 4:
        transpose(tile, 4, EDGE * 4 + LINE, src, buffer);
        break;
    case 8:
        transpose(tile, 8, EDGE * 8 + LINE, src, buffer);
        break;
    case 16:
        transpose(tile, 16, EDGE / 2 * 16 + LINE, src, buffer);
        break;
    default:
        transpose(tile, element_bytes, pitch, src, buffer);
        break;
    }
    for (int64_t column = 0; column < tile->n_columns; column++)
        memcpy(dst + column * tile->dst_column_stride, buffer + (size_t)column * pitch,
               (size_t)tile->n_rows * element_bytes);
}
