#include "transpose.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* A tile goes through a buffer in the first-level cache: rows come from the source whole and go to
 * the destination whole, so that no cache line of either is visited twice. Strides of a power of
 * two, usual in arrays, would otherwise put a tile's rows into a few sets of the cache; for the
 * same reason the buffer's rows are a cache line longer than they need to be. */
enum { EDGE = 64, LINE = SDS__TRANSPOSE_LINE };

int64_t sds__transpose_edge(size_t element_bytes)
{
    if (element_bytes <= 2) return 2 * EDGE;
    if (element_bytes <= 8) return EDGE;
    if (element_bytes <= 16) return EDGE / 2;
    /* From here a row of a tile is so few elements that copying them one by one is as fast. */
    if (element_bytes <= 64) return 16;
    return 0;
}

#if defined(__SSE2__)

/* Halves of two registers, their elements alternating. */
static inline __attribute__((always_inline)) __m128i interleave(size_t element_bytes, int high,
                                                                __m128i a, __m128i b)
{
    switch (element_bytes) {
    case 1:
        return high ? _mm_unpackhi_epi8(a, b) : _mm_unpacklo_epi8(a, b);
    case 2:
        return high ? _mm_unpackhi_epi16(a, b) : _mm_unpacklo_epi16(a, b);
    case 4:
        return high ? _mm_unpackhi_epi32(a, b) : _mm_unpacklo_epi32(a, b);
    default:
        return high ? _mm_unpackhi_epi64(a, b) : _mm_unpacklo_epi64(a, b);
    }
}

/* A square of as many elements a side as a register holds, n. Interleaving the first half of the
 * rows with the second moves one bit of an element's row number into its column number; after as
 * many rounds as n has bits, rows are columns. */
static inline __attribute__((always_inline)) void transpose_square(size_t element_bytes,
                                                                   const uint8_t *src,
                                                                   int64_t src_stride, uint8_t *dst,
                                                                   size_t dst_stride)
{
    const int n = (int)(sizeof(__m128i) / element_bytes);
    __m128i row[16];
    __m128i next[16];
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
        row[i] = _mm_loadu_si128((const __m128i *)(const void *)(src + i * src_stride));
#pragma GCC unroll 4
    for (int round = n; round > 1; round /= 2) {
#pragma GCC unroll 16
        for (int i = 0; i < n; i++)
            next[i] = interleave(element_bytes, i % 2, row[i / 2], row[i / 2 + n / 2]);
#pragma GCC unroll 16
        for (int i = 0; i < n; i++)
            row[i] = next[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
        _mm_storeu_si128((__m128i *)(void *)(dst + (size_t)i * dst_stride), row[i]);
}

#endif

/* Rows from first_row and columns from first_column on. */
static inline __attribute__((always_inline)) void
transpose_rest(const sds__tile *tile, int64_t first_row, int64_t first_column, size_t element_bytes,
               size_t pitch, const uint8_t *src, uint8_t *buffer)
{
    for (int64_t row = first_row; row < tile->n_rows; row++) {
        const uint8_t *from = src + row * tile->src_row_stride;
        uint8_t *to = buffer + (size_t)row * element_bytes;
        for (int64_t column = first_column; column < tile->n_columns; column++)
            memcpy(to + (size_t)column * pitch, from + (size_t)column * element_bytes,
                   element_bytes);
    }
}

static inline __attribute__((always_inline)) void transpose(const sds__tile *tile,
                                                            size_t element_bytes, size_t pitch,
                                                            const uint8_t *src, uint8_t *buffer)
{
#if defined(__SSE2__)
    if (element_bytes == 1 || element_bytes == 2 || element_bytes == 4 || element_bytes == 8) {
        const int64_t n = (int64_t)(sizeof(__m128i) / element_bytes);
        const int64_t rows = tile->n_rows - tile->n_rows % n;
        const int64_t columns = tile->n_columns - tile->n_columns % n;
        for (int64_t row = 0; row < rows; row += n)
            for (int64_t column = 0; column < columns; column += n)
                transpose_square(element_bytes,
                                 src + row * tile->src_row_stride + (size_t)column * element_bytes,
                                 tile->src_row_stride,
                                 buffer + (size_t)column * pitch + (size_t)row * element_bytes,
                                 pitch);
        sds__tile below = *tile;
        below.n_columns = columns;
        transpose_rest(&below, rows, 0, element_bytes, pitch, src, buffer);
        transpose_rest(tile, 0, columns, element_bytes, pitch, src, buffer);
        return;
    }
#endif
    transpose_rest(tile, 0, 0, element_bytes, pitch, src, buffer);
}

void sds__transpose_tile(const sds__tile *tile, size_t element_bytes, const uint8_t *src,
                         uint8_t *dst, uint8_t *buffer)
{
    const size_t edge = (size_t)sds__transpose_edge(element_bytes);
    const size_t pitch = edge * element_bytes + LINE;
    switch (element_bytes) {
    case 1:
        transpose(tile, 1, 2 * EDGE * 1 + LINE, src, buffer);
        break;
    case 2:
        transpose(tile, 2, 2 * EDGE * 2 + LINE, src, buffer);
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
        transpose_rest(tile, 0, 0, element_bytes, pitch, src, buffer);
        break;
    }
    for (int64_t column = 0; column < tile->n_columns; column++)
        memcpy(dst + column * tile->dst_column_stride, buffer + (size_t)column * pitch,
               (size_t)tile->n_rows * element_bytes);
}
