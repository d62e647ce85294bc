#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "sds/read_engine.h"

#define FILE_BYTES (1 << 21)
#define MOST 3000
static uint8_t content[FILE_BYTES];
static uint8_t out[FILE_BYTES + 16];
static sds_piece pieces[MOST], scratch[MOST];
static char path[] = "/tmp/sds-test-pieces-XXXXXX";

/* Random pieces of elements, dense or far apart, some twice, some long; returns how many bytes. */
static int64_t random_pieces(uint64_t *state, int64_t element_bytes, size_t *n)
{
    const int64_t origin = random_between(state, 0, 4096);
    const int64_t n_elements = (FILE_BYTES - origin) / element_bytes;
    const int64_t spread = INT64_C(1) << random_between(state, 3, 21);
    int64_t position = 0;
    *n = (size_t)random_between(state, 1, MOST);
    for (size_t i = 0; i < *n; i++) {
        int64_t length = random_u64(state) % 50 == 0 ? random_between(state, 1, n_elements) : 1;
        if (random_u64(state) % 8 == 0) length = random_between(state, 1, 9);
        int64_t offset = random_between(state, 0, spread < n_elements ? spread : n_elements - 1);
        if (i > 0 && random_u64(state) % 10 == 0)
            offset = (pieces[i - 1].offset - origin) / element_bytes;
        if (length > n_elements - offset) length = n_elements - offset;
        if (position + length * element_bytes > FILE_BYTES) length = 1;
        if (position + element_bytes > FILE_BYTES) {
            *n = i;
            break;
        }
        pieces[i] = (sds_piece){origin + offset * element_bytes, length * element_bytes, position};
        position += length * element_bytes;
    }
    return position;
}

static void test_any_pieces_equal_one_by_one(sds_file *file)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 8, 12, 16, 100, 20000, 300000};
    uint64_t state = 21;
    for (int round = 0; round < 3000; round++) {
        size_t n;
        const int64_t total =
            random_pieces(&state, sizes[random_u64(&state) % (sizeof sizes / sizeof *sizes)], &n);
        memset(out + total, 0xA5, 16);
        sds_pieces_sort(n, pieces, scratch);
        CHECK(sds_read_pieces(file, n, pieces, NULL, out, NULL) == SDS_OK);
        for (size_t i = 0; i < n; i++)
            CHECK(memcmp(out + pieces[i].position, content + pieces[i].offset,
                         (size_t)pieces[i].length) == 0);
        CHECK(out[total] == 0xA5 && out[total + 15] == 0xA5);
    }
}

static void test_what_cannot_be_read_is_refused(sds_file *file)
{
    const sds_piece last = {FILE_BYTES - 8, 8, 0}, beyond = {FILE_BYTES - 8, 9, 0};
    const sds_piece backwards[] = {{40, 8, 0}, {32, 8, 8}};
    const sds_piece empty = {5, 0, 0}, negative = {-1, 1, 0}, far = {INT64_MAX, 1, 0};
    CHECK(sds_read_pieces(file, 1, &last, NULL, out, NULL) == SDS_OK);
    CHECK(sds_read_pieces(file, 1, &beyond, NULL, out, NULL) == SDS_ESHORT);
    CHECK(sds_read_pieces(file, 2, backwards, NULL, out, NULL) == SDS_EINVAL);
    CHECK(sds_read_pieces(file, 1, &empty, NULL, out, NULL) == SDS_EINVAL);
    CHECK(sds_read_pieces(file, 1, &negative, NULL, out, NULL) == SDS_EINVAL);
    CHECK(sds_read_pieces(file, 1, &far, NULL, out, NULL) == SDS_EOVERFLOW);
    CHECK(sds_read_pieces(file, 0, NULL, NULL, NULL, NULL) == SDS_OK);
    sds_file *none;
    CHECK(sds_file_open(-1, NULL, &none) == SDS_OK);
    errno = 0;
    CHECK(sds_read_pieces(none, 1, &last, NULL, out, NULL) == SDS_EIO && errno == EBADF);
    sds_file_close(none);
}

int main(void)
{
    const int fd = mkstemp(path);
    uint64_t state = 9;
    sds_file *file;
    CHECK(fd >= 0 && unlink(path) == 0);
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)random_u64(&state);
    CHECK(write(fd, content, sizeof content) == FILE_BYTES);
    CHECK(sds_file_open(fd, NULL, &file) == SDS_OK);
    test_any_pieces_equal_one_by_one(file);
    test_what_cannot_be_read_is_refused(file);
    sds_file_close(file);
    close(fd);
    return 0;
}
