#include <string.h>

#include "check.h"
#include "sds/permute.h"

#define MAX_BYTES (1 << 16)
static uint8_t src[MAX_BYTES];
static uint8_t dst[MAX_BYTES];
static uint8_t expected[MAX_BYTES];

/* One element at a time. */
static void permute_slowly(int32_t rank, const int64_t shape[], const int32_t order[],
                           size_t element_bytes)
{
    int64_t index[8] = {0};
    int64_t total = 1;
    for (int32_t axis = 0; axis < rank; axis++)
        total *= shape[axis];
    for (int64_t n = 0; n < total; n++) {
        int64_t from = 0;
        for (int32_t axis = 0; axis < rank; axis++) {
            int64_t at = 0;
            for (int32_t i = 0; i < rank; i++)
                if (order[i] == axis) at = index[i];
            from = from * shape[axis] + at;
        }
        memcpy(expected + (size_t)n * element_bytes, src + (size_t)from * element_bytes,
               element_bytes);
        for (int32_t i = rank - 1; i >= 0; i--) {
            if (++index[i] < shape[order[i]]) break;
            index[i] = 0;
        }
    }
}

static void test_every_order_equals_one_element_at_a_time(void)
{
    static const size_t sizes[] = {1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 64, 65, 100};
    uint64_t state = 5;
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (uint8_t)random_u64(&state);
    for (int round = 0; round < 6000; round++) {
        const size_t element_bytes = sizes[random_u64(&state) % (sizeof sizes / sizeof *sizes)];
        const int32_t rank = (int32_t)random_between(&state, 0, 5);
        int64_t shape[8];
        int32_t order[8];
        int64_t total = (int64_t)element_bytes;
        for (int32_t axis = 0; axis < rank; axis++) {
            const int64_t room = MAX_BYTES / total;
            const int64_t most = room < 100 ? room : 100;
            shape[axis] = random_u64(&state) % 3 ? random_between(&state, 1, most < 8 ? most : 8)
                                                 : random_between(&state, 1, most);
            total *= shape[axis];
            order[axis] = axis;
        }
        for (int32_t axis = rank - 1; axis > 0; axis--) {
            const int64_t other = random_between(&state, 0, axis);
            const int32_t kept = order[axis];
            order[axis] = order[other];
            order[other] = kept;
        }
        permute_slowly(rank, shape, order, element_bytes);
        memset(dst, 0xA5, sizeof dst);
        CHECK(sds_permute(rank, shape, order, element_bytes, src, dst) == SDS_OK);
        CHECK(memcmp(dst, expected, (size_t)total) == 0);
        for (size_t i = (size_t)total; i < sizeof dst && i < (size_t)total + 256; i++)
            CHECK(dst[i] == 0xA5);
    }
}

static void test_strides_of_either_sign(void)
{
    const int64_t shape[2] = {3, 4};
    const int64_t src_stride[2] = {40, -4};
    const int64_t dst_stride[2] = {-1, 8};
    CHECK(sds_copy_strided(2, shape, src_stride, dst_stride, 1, src + 12, dst + 100) == SDS_OK);
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 0; j < 4; j++)
            CHECK(dst[100 - i + 8 * j] == src[12 + 40 * i - 4 * j]);
}

static void test_what_is_no_permutation_is_refused(void)
{
    const int64_t shape[2] = {2, 3};
    const int64_t huge[2] = {INT64_MAX / 2, 3};
    const int64_t negative[2] = {2, -1};
    const int64_t empty[2] = {0, 3};
    const int32_t twice[2] = {1, 1};
    const int32_t outside[2] = {0, 2};
    const int32_t order[2] = {1, 0};
    CHECK(sds_permute(2, shape, twice, 4, src, dst) == SDS_EINVAL);
    CHECK(sds_permute(2, shape, outside, 4, src, dst) == SDS_EINVAL);
    CHECK(sds_permute(33, shape, order, 4, src, dst) == SDS_EINVAL);
    CHECK(sds_permute(2, shape, order, 0, src, dst) == SDS_EINVAL);
    CHECK(sds_permute(2, negative, order, 4, src, dst) == SDS_EINVAL);
    CHECK(sds_permute(2, huge, order, 4, src, dst) == SDS_EOVERFLOW);
    CHECK(sds_permute(2, empty, order, 4, NULL, NULL) == SDS_OK);
}

int main(void)
{
    test_every_order_equals_one_element_at_a_time();
    test_strides_of_either_sign();
    test_what_is_no_permutation_is_refused();
    return 0;
}
