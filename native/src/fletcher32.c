#include "sds/filters.h"

/* A block's sums fit 32 bits, which the compiler makes vectors of:
 * 65535 * (BLOCK_WORDS + ... + 1) < 2^32. */
#define BLOCK_WORDS 256

/* The sums are of the ring of 65535, in which 0 has two names. Folding carries back in, as HDF5
 * does, yields 0 for a sum of nothing but zeros and 65535 for any other. */
static uint32_t folded(uint64_t sum)
{
    return sum == 0 ? 0 : (uint32_t)((sum - 1) % 65535 + 1);
}

uint32_t sds_fletcher32(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t words = n / 2;
    uint64_t sum = 0, sum_of_sums = 0; /* kept below 2^17, so that products stay in 64 bits */
    while (words > 0) {
        const size_t now = words < BLOCK_WORDS ? words : BLOCK_WORDS;
        uint32_t block_sum = 0, weighted = 0;
        for (size_t i = 0; i < now; i++) {
            const uint32_t word = (uint32_t)p[2 * i] << 8 | p[2 * i + 1];
            block_sum += word;
            weighted += word * (uint32_t)(now - i);
        }
        sum_of_sums = folded(sum_of_sums + sum * now + weighted);
        sum = folded(sum + block_sum);
        p += 2 * now;
        words -= now;
    }
    if (n % 2 != 0) {
        sum = folded(sum + ((uint64_t)*p << 8));
        sum_of_sums = folded(sum_of_sums + sum);
    }
    return (uint32_t)sum_of_sums << 16 | (uint32_t)sum;
}
