#include "check.h"
#include "sds/read_types.h"

#define MOST 3000
static sds_piece pieces[MOST], scratch[MOST];

static void test_sorting_keeps_equals_in_order(void)
{
    uint64_t state = 3;
    for (int round = 0; round < 600; round++) {
        const size_t n = (size_t)random_between(&state, 0, round % 3 == 0 ? 40 : MOST);
        const int64_t lowest = random_u64(&state) % 2 ? 0 : random_between(&state, 0, 1) << 40;
        /* Up to 2^62 apart, so that every number of passes occurs. */
        const int64_t range = INT64_C(1) << random_between(&state, 0, 62);
        for (size_t i = 0; i < n; i++)
            pieces[i] = (sds_piece){lowest + random_between(&state, 0, range - 1), 1, (int64_t)i};
        uint64_t sum = 0, sum_after = 0;
        for (size_t i = 0; i < n; i++)
            sum += (uint64_t)pieces[i].offset * (2 * (uint64_t)pieces[i].position + 1);
        sds_pieces_sort(n, pieces, scratch);
        for (size_t i = 0; i < n; i++)
            sum_after += (uint64_t)pieces[i].offset * (2 * (uint64_t)pieces[i].position + 1);
        CHECK(sum == sum_after);
        for (size_t i = 1; i < n; i++)
            CHECK(pieces[i - 1].offset < pieces[i].offset ||
                  (pieces[i - 1].offset == pieces[i].offset &&
                   pieces[i - 1].position < pieces[i].position));
    }
}

int main(void)
{
    test_sorting_keeps_equals_in_order();
    return 0;
}
