#include <string.h>

#include "sds/filters.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Elements whose bytes are put together at a time: their cache lines stay in the first level. */
#define TILE_ELEMENTS 256

static void unshuffle_any(size_t element_bytes, size_t first, size_t n_elements, const uint8_t *in,
                          uint8_t *out)
{
    for (size_t begin = first; begin < n_elements; begin += TILE_ELEMENTS) {
        const size_t end = n_elements - begin < TILE_ELEMENTS ? n_elements : begin + TILE_ELEMENTS;
        for (size_t byte = 0; byte < element_bytes; byte++) {
            const uint8_t *from = in + byte * n_elements;
            uint8_t *to = out + byte;
            for (size_t i = begin; i < end; i++)
                to[i * element_bytes] = from[i];
        }
    }
}

#if defined(__SSE2__)

#define LANES 16

static __m128i load(const uint8_t *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

static void store(uint8_t *to, __m128i bytes)
{
    _mm_storeu_si128((__m128i *)(void *)to, bytes);
}

/* Each returns how many elements it did: all but fewer than 16. */
static size_t unshuffle_2(size_t n, const uint8_t *in, uint8_t *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES, out += 2 * LANES) {
        const __m128i a = load(in + i), b = load(in + n + i);
        store(out, _mm_unpacklo_epi8(a, b));
        store(out + LANES, _mm_unpackhi_epi8(a, b));
    }
    return i;
}

static size_t unshuffle_4(size_t n, const uint8_t *in, uint8_t *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES, out += 4 * LANES) {
        const __m128i a = load(in + i), b = load(in + n + i);
        const __m128i c = load(in + 2 * n + i), d = load(in + 3 * n + i);
        const __m128i low_ab = _mm_unpacklo_epi8(a, b), high_ab = _mm_unpackhi_epi8(a, b);
        const __m128i low_cd = _mm_unpacklo_epi8(c, d), high_cd = _mm_unpackhi_epi8(c, d);
        store(out, _mm_unpacklo_epi16(low_ab, low_cd));
        store(out + LANES, _mm_unpackhi_epi16(low_ab, low_cd));
        store(out + 2 * LANES, _mm_unpacklo_epi16(high_ab, high_cd));
        store(out + 3 * LANES, _mm_unpackhi_epi16(high_ab, high_cd));
    }
    return i;
}

static size_t unshuffle_8(size_t n, const uint8_t *in, uint8_t *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES, out += 8 * LANES) {
        __m128i pairs[8], fours[8];
        for (size_t k = 0; k < 4; k++) {
            const __m128i a = load(in + 2 * k * n + i), b = load(in + (2 * k + 1) * n + i);
            pairs[k] = _mm_unpacklo_epi8(a, b);
            pairs[4 + k] = _mm_unpackhi_epi8(a, b);
        }
        for (size_t half = 0; half < 2; half++)
            for (size_t k = 0; k < 2; k++) {
                const __m128i a = pairs[4 * half + 2 * k], b = pairs[4 * half + 2 * k + 1];
                fours[4 * half + k] = _mm_unpacklo_epi16(a, b);
                fours[4 * half + 2 + k] = _mm_unpackhi_epi16(a, b);
            }
        for (size_t k = 0; k < 4; k++) {
            store(out + 2 * k * LANES, _mm_unpacklo_epi32(fours[2 * k], fours[2 * k + 1]));
            store(out + (2 * k + 1) * LANES, _mm_unpackhi_epi32(fours[2 * k], fours[2 * k + 1]));
        }
    }
    return i;
}

#endif

void sds_unshuffle(size_t element_bytes, size_t n, const void *in, void *out)
{
    const size_t n_elements = element_bytes == 0 ? 0 : n / element_bytes;
    if (element_bytes <= 1 || n_elements <= 1) {
        memcpy(out, in, n);
        return;
    }
    size_t done = 0;
#if defined(__SSE2__)
    if (element_bytes == 2) done = unshuffle_2(n_elements, in, out);
    if (element_bytes == 4) done = unshuffle_4(n_elements, in, out);
    if (element_bytes == 8) done = unshuffle_8(n_elements, in, out);
#endif
    unshuffle_any(element_bytes, done, n_elements, in, out);
    const size_t whole = n_elements * element_bytes;
    memcpy((uint8_t *)out + whole, (const uint8_t *)in + whole, n - whole);
}
