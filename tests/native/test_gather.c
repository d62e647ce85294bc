#include "sds/gather.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define FILE_BYTES (1 << 21)
#define MOST 3000
static uint8_t content[FILE_BYTES];
static uint8_t out[FILE_BYTES + 16];
static sds_segment segments[MOST], scratch[MOST];
static char path[] = "/tmp/sds-test-gather-XXXXXX";

static void test_sorting_keeps_equals_in_order(void)
{
    uint64_t state = 3;
    for (int round = 0; round < 600; round++) {
        const size_t n = (size_t)random_between(&state, 0, round % 3 == 0 ? 40 : MOST);
        const int64_t lowest = random_u64(&state) % 2 ? 0 : random_between(&state, 0, 1) << 40;
        /* Up to 2^62 apart, so that every number of passes occurs. */
        const int64_t range = INT64_C(1) << random_between(&state, 0, 62);
        for (size_t i = 0; i < n; i++)
            segments[i] =
                (sds_segment){lowest + random_between(&state, 0, range - 1), 1, (uint32_t)i};
        uint64_t sum = 0, sum_after = 0;
        for (size_t i = 0; i < n; i++)
            sum += (uint64_t)segments[i].offset * (2 * segments[i].position + 1);
        sds_segments_sort(n, segments, scratch);
        for (size_t i = 0; i < n; i++)
            sum_after += (uint64_t)segments[i].offset * (2 * segments[i].position + 1);
        CHECK(sum == sum_after);
        for (size_t i = 1; i < n; i++)
            CHECK(segments[i - 1].offset < segments[i].offset ||
                  (segments[i - 1].offset == segments[i].offset &&
                   segments[i - 1].position < segments[i].position));
    }
}

/* Random segments, dense or far apart, some twice, some long; returns how many elements. */
static size_t random_segments(uint64_t *state, int64_t n_elements, size_t most, size_t *n)
{
    const int64_t spread = INT64_C(1) << random_between(state, 3, 21);
    size_t position = 0;
    *n = (size_t)random_between(state, 1, MOST);
    for (size_t i = 0; i < *n; i++) {
        int64_t length = random_u64(state) % 50 == 0 ? random_between(state, 1, n_elements) : 1;
        if (random_u64(state) % 8 == 0) length = random_between(state, 1, 9);
        int64_t offset = random_between(state, 0, spread < n_elements ? spread : n_elements - 1);
        if (i > 0 && random_u64(state) % 10 == 0) offset = segments[i - 1].offset;
        if (length > n_elements - offset) length = n_elements - offset;
        if (position + (size_t)length > most) length = 1;
        if (position == most) {
            *n = i;
            break;
        }
        segments[i] = (sds_segment){offset, (uint32_t)length, (uint32_t)position};
        position += (size_t)length;
    }
    return position;
}

static void test_any_segments_equal_one_by_one(int fd)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 8, 12, 16, 100, 20000, 300000};
    uint64_t state = 21;
    for (int round = 0; round < 3000; round++) {
        const int64_t size = sizes[random_u64(&state) % (sizeof sizes / sizeof *sizes)];
        const int64_t data_offset = random_between(&state, 0, 4096);
        const int64_t n_elements = (FILE_BYTES - data_offset) / size;
        size_t n;
        const size_t total =
            random_segments(&state, n_elements, (size_t)(FILE_BYTES / size), &n) * (size_t)size;
        memset(out + total, 0xA5, 16);
        sds_segments_sort(n, segments, scratch);
        CHECK(sds_read_segments(fd, data_offset, size, n, segments, out) == SDS_OK);
        for (size_t i = 0; i < n; i++)
            CHECK(memcmp(out + (int64_t)segments[i].position * size,
                         content + data_offset + segments[i].offset * size,
                         segments[i].length * (size_t)size) == 0);
        CHECK(out[total] == 0xA5 && out[total + 15] == 0xA5);
    }
}

static void test_what_cannot_be_read_is_refused(int fd)
{
    const sds_segment last = {FILE_BYTES / 8 - 1, 1, 0}, beyond = {FILE_BYTES / 8 - 1, 2, 0};
    const sds_segment backwards[] = {{5, 1, 0}, {4, 1, 1}};
    const sds_segment empty = {5, 0, 0}, negative = {-1, 1, 0}, far = {INT64_MAX / 4, 1, 0};
    CHECK(sds_read_segments(fd, 0, 8, 1, &last, out) == SDS_OK);
    CHECK(sds_read_segments(fd, 0, 8, 1, &beyond, out) == SDS_ESHORT);
    CHECK(sds_read_segments(fd, 8, 8, 1, &last, out) == SDS_ESHORT);
    CHECK(sds_read_segments(fd, 0, 8, 2, backwards, out) == SDS_EINVAL);
    CHECK(sds_read_segments(fd, 0, 8, 1, &empty, out) == SDS_EINVAL);
    CHECK(sds_read_segments(fd, 0, 8, 1, &negative, out) == SDS_EINVAL);
    CHECK(sds_read_segments(fd, 0, 8, 1, &far, out) == SDS_EOVERFLOW);
    CHECK(sds_read_segments(fd, -8, 8, 1, &last, out) == SDS_EINVAL);
    CHECK(sds_read_segments(fd, 0, 0, 1, &last, out) == SDS_EINVAL);
    CHECK(sds_read_segments(fd, 0, 8, 0, NULL, NULL) == SDS_OK);
    errno = 0;
    CHECK(sds_read_segments(-1, 0, 8, 1, &last, out) == SDS_EIO && errno == EBADF);
}

int main(void)
{
    const int fd = mkstemp(path);
    uint64_t state = 9;
    CHECK(fd >= 0 && unlink(path) == 0);
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)random_u64(&state);
    CHECK(write(fd, content, sizeof content) == FILE_BYTES);
    test_sorting_keeps_equals_in_order();
    test_any_segments_equal_one_by_one(fd);
    test_what_cannot_be_read_is_refused(fd);
    close(fd);
    return 0;
}
