#include <string.h>

#include "sds/read_types.h"

#define MAX_DIGIT_BITS 10
/* Below this, moving elements one by one is the fastest way to sort. */
#define FEW_PIECES 32

static void sort_few(size_t n, sds_piece pieces[])
{
    for (size_t i = 1; i < n; i++) {
        const sds_piece moving = pieces[i];
        size_t at = i;
        for (; at > 0 && pieces[at - 1].offset > moving.offset; at--)
            pieces[at] = pieces[at - 1];
        pieces[at] = moving;
    }
}

/* One pass of a radix sort: order by some bits of the offset, keeping the order of equals. */
static void sort_by_digit(size_t n, const sds_piece from[], sds_piece to[], int64_t lowest,
                          int shift, int bits)
{
    uint32_t next[1 << MAX_DIGIT_BITS]; /* positions have 32 bits, too */
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    memset(next, 0, sizeof *next << bits);
    for (size_t i = 0; i < n; i++)
        next[((uint64_t)(from[i].offset - lowest) >> shift) & mask]++;
    uint32_t before = 0;
    for (uint64_t digit = 0; digit <= mask; digit++) {
        const uint32_t count = next[digit];
        next[digit] = before;
        before += count;
    }
    for (size_t i = 0; i < n; i++)
        to[next[((uint64_t)(from[i].offset - lowest) >> shift) & mask]++] = from[i];
}

void sds_pieces_sort(size_t n, sds_piece pieces[], sds_piece scratch[])
{
    if (n == 0) return;
    int64_t lowest = pieces[0].offset, highest = lowest;
    int is_sorted = 1;
    for (size_t i = 1; i < n; i++) {
        is_sorted &= pieces[i - 1].offset <= pieces[i].offset;
        if (pieces[i].offset < lowest) lowest = pieces[i].offset;
        if (pieces[i].offset > highest) highest = pieces[i].offset;
    }
    if (is_sorted) return;
    if (n <= FEW_PIECES) {
        sort_few(n, pieces);
        return;
    }
    const int digit_bits = n < 1024 ? 8 : MAX_DIGIT_BITS;
    const uint64_t range = (uint64_t)highest - (uint64_t)lowest;
    sds_piece *from = pieces, *to = scratch;
    for (int shift = 0; shift < 64 && range >> shift != 0; shift += digit_bits) {
        const int bits = 64 - shift < digit_bits ? 64 - shift : digit_bits;
        sort_by_digit(n, from, to, lowest, shift, bits);
        sds_piece *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != pieces) memcpy(pieces, from, n * sizeof *pieces);
}
