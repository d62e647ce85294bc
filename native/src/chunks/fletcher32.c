#include "sds/filters.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* A block's sums fit 32 bits: 65535 * (BLOCK_WORDS + ... + 1) < 2^32. */
#define BLOCK_WORDS 256

/* The sums are of the ring of 65535, in which 0 has two names. Folding carries back in, as HDF5
 * does, yields 0 for a sum of nothing but zeros and 65535 for any other. */
static uint32_t folded(uint64_t sum)
{
    return sum == 0 ? 0 : (uint32_t)((sum - 1) % 65535 + 1);
}

/* Of some words: their sum, and that of the sums of the first, the first two, ... of them. */
typedef struct {
    uint64_t words;
    uint64_t sums;
} block_sums;

static block_sums sums_of(const uint8_t *p, size_t n)
{
    uint32_t words = 0, sums = 0;
    for (size_t i = 0; i < n; i++) {
        words += (uint32_t)p[2 * i] << 8 | p[2 * i + 1];
        sums += words;
    }
    return (block_sums){words, sums};
}

#if defined(__SSE2__)

#define LANES 8
/* Lanes of 32 bits: each holds the words of one place in eight, and sums_before, all the words
 * before: 2 * 65535 * (STEPS - 1) * STEPS / 2 < 2^32. */
#define STEPS 240

static uint64_t weighted(__m128i lanes, const uint32_t weight[4])
{
    uint32_t lane[4];
    uint64_t sum = 0;
    _mm_storeu_si128((__m128i *)(void *)lane, lanes);
    for (int i = 0; i < 4; i++)
        sum += (uint64_t)weight[i] * lane[i];
    return sum;
}

static block_sums sums_of_steps(const uint8_t *p, size_t n_steps)
{
    static const uint32_t ones[4] = {1, 1, 1, 1}, lanes[4] = {LANES, LANES, LANES, LANES};
    static const uint32_t first[4] = {8, 7, 6, 5}, second[4] = {4, 3, 2, 1};
    const __m128i zero = _mm_setzero_si128();
    __m128i low = zero, high = zero, before = zero;
    for (size_t i = 0; i < n_steps; i++, p += 2 * LANES) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        const __m128i words = _mm_or_si128(_mm_slli_epi16(bytes, 8), _mm_srli_epi16(bytes, 8));
        before = _mm_add_epi32(before, _mm_add_epi32(low, high));
        low = _mm_add_epi32(low, _mm_unpacklo_epi16(words, zero));
        high = _mm_add_epi32(high, _mm_unpackhi_epi16(words, zero));
    }
    return (block_sums){
        weighted(low, ones) + weighted(high, ones),
        weighted(before, lanes) + weighted(low, first) + weighted(high, second),
    };
}

#endif

static size_t next_block(const uint8_t *p, size_t words, block_sums *out)
{
#if defined(__SSE2__)
    if (words >= LANES) {
        const size_t steps = words / LANES < STEPS ? words / LANES : STEPS;
        *out = sums_of_steps(p, steps);
        return steps * LANES;
    }
#endif
    const size_t n = words < BLOCK_WORDS ? words : BLOCK_WORDS;
    *out = sums_of(p, n);
    return n;
}

uint32_t sds_fletcher32(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t words = n / 2;
    uint64_t sum = 0, sum_of_sums = 0; /* kept below 2^17, so that products stay in 64 bits */
    while (words > 0) {
        block_sums block;
        const size_t now = next_block(p, words, &block);
        sum_of_sums = folded(sum_of_sums + sum * now + block.sums);
        sum = folded(sum + block.words);
        p += 2 * now;
        words -= now;
    }
    if (n % 2 != 0) {
        sum = folded(sum + ((uint64_t)*p << 8));
        sum_of_sums = folded(sum_of_sums + sum);
    }
    return (uint32_t)sum_of_sums << 16 | (uint32_t)sum;
}
