#include "crc32c.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "sds/checksum.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <nmmintrin.h>
#endif

/* The Castagnoli polynomial 0x1EDC6F41, bits reversed (RFC 3720, appendix B.4). */
#define POLYNOMIAL 0x82F63B78U

/* table[k][b]: what byte b followed by k zero bytes contributes ("slicing by 8"). */
static uint32_t table[8][256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? POLYNOMIAL : 0);
        table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            const uint32_t before = table[k - 1][byte];
            table[k][byte] = (before >> 8) ^ table[0][before & 0xFF];
        }
}

uint32_t sds__crc32c_portable(uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    pthread_once(&table_once, make_table);
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        const uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                    (uint32_t)p[3] << 24);
        crc = table[7][low & 0xFF] ^ table[6][(low >> 8) & 0xFF] ^ table[5][(low >> 16) & 0xFF] ^
              table[4][low >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^
              table[0][p[7]];
    }
    for (; n > 0; n--, p++)
        crc = (crc >> 8) ^ table[0][(crc ^ *p) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__)

/* One question, when it is needed: the compiler's own __builtin_cpu_supports has all features
 * looked at when a program starts, and a virtual machine takes microseconds for each. */
int sds__crc32c_has_hardware(void)
{
    enum { UNKNOWN, ABSENT, PRESENT };
    static _Atomic int known = UNKNOWN;
    int has = atomic_load_explicit(&known, memory_order_relaxed);
    if (has == UNKNOWN) {
        unsigned a, b, c, d;
        __cpuid(1, a, b, c, d);
        has = c & bit_SSE4_2 ? PRESENT : ABSENT;
        atomic_store_explicit(&known, has, memory_order_relaxed);
    }
    return has == PRESENT;
}

__attribute__((target("sse4.2"))) uint32_t sds__crc32c_hardware(uint32_t crc, const void *bytes,
                                                                size_t n)
{
    const uint8_t *p = bytes;
    uint64_t wide = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    uint32_t narrow = (uint32_t)wide;
    for (; n > 0; n--, p++)
        narrow = _mm_crc32_u8(narrow, *p);
    return ~narrow;
}

#else

int sds__crc32c_has_hardware(void)
{
    return 0;
}

uint32_t sds__crc32c_hardware(uint32_t crc, const void *bytes, size_t n)
{
    return sds__crc32c_portable(crc, bytes, n);
}

#endif

uint32_t sds_crc32c(uint32_t crc, const void *bytes, size_t n)
{
    return sds__crc32c_has_hardware() ? sds__crc32c_hardware(crc, bytes, n)
                                      : sds__crc32c_portable(crc, bytes, n);
}
