#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "sds/read_engine.h"

#define FILE_BYTES (1 << 21)
static uint8_t content[FILE_BYTES];
static uint8_t out[FILE_BYTES + 16];
static char path[] = "/tmp/sds-test-engine-XXXXXX";

static sds_file *open_file(int fd)
{
    sds_file *file;
    CHECK(sds_file_open(fd, NULL, &file) == SDS_OK);
    return file;
}

/* Random levels, innermost first, that stay inside the file. */
static sds_runs random_runs(uint64_t *state)
{
    sds_runs runs = {.first_offset = random_between(state, 0, 4096)};
    const int64_t longest = random_u64(state) % 4 == 0 ? 10000 : 64;
    runs.run_bytes = random_between(state, 1, longest);
    sds_level level[4];
    int64_t span = runs.run_bytes;
    int n = 0;
    while (n < 4 && random_u64(state) % 5 != 0) {
        const int64_t gap =
            random_u64(state) % 2 ? random_between(state, 1, 100) : random_between(state, 1, 60000);
        const int64_t stride = span + gap;
        const int64_t room = (FILE_BYTES - runs.first_offset - span) / stride + 1;
        if (room < 2) break;
        level[n].stride_bytes = stride;
        level[n].count = random_between(state, 2, room < 50 ? room : 50);
        span += (level[n].count - 1) * stride;
        n++;
    }
    runs.n_levels = n;
    for (int l = 0; l < n; l++)
        runs.level[l] = level[n - 1 - l];
    return runs;
}

static int64_t read_slowly(const sds_runs *runs, int32_t l, int64_t offset, int64_t at, int check)
{
    if (l == runs->n_levels) {
        if (check) CHECK(memcmp(out + at, content + offset, (size_t)runs->run_bytes) == 0);
        return at + runs->run_bytes;
    }
    for (int64_t i = 0; i < runs->level[l].count; i++)
        at = read_slowly(runs, l + 1, offset + i * runs->level[l].stride_bytes, at, check);
    return at;
}

static void test_any_runs_equal_one_by_one(sds_file *file)
{
    uint64_t state = 11;
    for (int round = 0; round < 4000; round++) {
        const sds_runs runs = random_runs(&state);
        const int64_t total = read_slowly(&runs, 0, runs.first_offset, 0, 0);
        CHECK(total <= FILE_BYTES);
        memset(out + total, 0xA5, 16);
        sds_read_report report;
        CHECK(sds_read_runs(file, &runs, NULL, out, &report) == SDS_OK);
        read_slowly(&runs, 0, runs.first_offset, 0, 1);
        CHECK(out[total] == 0xA5 && out[total + 15] == 0xA5);
        CHECK(report.bytes_read >= total && report.requests >= 1);
    }
}

static void test_small_gaps_are_read_together(sds_file *file)
{
    const sds_runs near = {0, 8, 1, {{1000, 64}}};
    const sds_runs far = {0, 8, 1, {{20, 65536}}};
    const sds_runs wide = {0, 8192, 1, {{100, 8300}}};
    sds_read_report report;
    CHECK(sds_read_runs(file, &near, NULL, out, &report) == SDS_OK);
    CHECK(report.requests == 1 && report.bytes_read == 999 * 64 + 8);
    CHECK(sds_read_runs(file, &far, NULL, out, &report) == SDS_OK);
    CHECK(report.requests == 20 && report.bytes_read == 160);
    CHECK(sds_read_runs(file, &wide, NULL, out, &report) == SDS_OK);
    CHECK(report.requests == 1 && report.bytes_read == 99 * 8300 + 8192);
}

static void test_a_file_that_ends_early(sds_file *file)
{
    const sds_runs last = {FILE_BYTES - 8, 8, 0, {{0, 0}}};
    const sds_runs beyond = {FILE_BYTES - 8, 9, 0, {{0, 0}}};
    const sds_runs sieved = {FILE_BYTES - 64, 8, 1, {{4, 32}}};
    const sds_runs vector = {FILE_BYTES - 20000, 5000, 1, {{5, 5100}}};
    CHECK(sds_read_runs(file, &last, NULL, out, NULL) == SDS_OK);
    CHECK(sds_read_runs(file, &beyond, NULL, out, NULL) == SDS_ESHORT);
    CHECK(sds_read_runs(file, &sieved, NULL, out, NULL) == SDS_ESHORT);
    CHECK(sds_read_runs(file, &vector, NULL, out, NULL) == SDS_ESHORT);
}

static void test_offsets_beyond_4_gib(void)
{
    char sparse[] = "/tmp/sds-test-sparse-XXXXXX";
    const int fd = mkstemp(sparse);
    CHECK(fd >= 0 && unlink(sparse) == 0);
    const int64_t at = (INT64_C(5) << 30) + 17;
    for (int64_t i = 0; i < 3; i++)
        CHECK(pwrite(fd, "marker", 6, at + i * (INT64_C(3) << 30)) == 6);
    const sds_runs runs = {at, 6, 1, {{3, INT64_C(3) << 30}}};
    sds_file *file = open_file(fd);
    CHECK(sds_read_runs(file, &runs, NULL, out, NULL) == SDS_OK);
    CHECK(memcmp(out, "markermarkermarker", 18) == 0);
    sds_file_close(file);
    close(fd);
}

static void test_what_cannot_be_runs_is_refused(sds_file *file)
{
    const sds_runs negative = {-1, 8, 0, {{0, 0}}};
    const sds_runs overflow = {0, 4, 1, {{INT64_MAX / 2, 4}}};
    const sds_runs nothing = {0, 0, 0, {{0, 0}}};
    const sds_runs one = {0, 1, 0, {{0, 0}}};
    CHECK(sds_read_runs(file, &negative, NULL, out, NULL) == SDS_EINVAL);
    CHECK(sds_read_runs(file, &overflow, NULL, out, NULL) == SDS_EOVERFLOW);
    CHECK(sds_read_runs(file, &nothing, NULL, NULL, NULL) == SDS_OK);
    sds_file *none = open_file(-1);
    errno = 0;
    CHECK(sds_read_runs(none, &one, NULL, out, NULL) == SDS_EIO && errno == EBADF);
    sds_file_close(none);
}

int main(void)
{
    const int fd = mkstemp(path);
    uint64_t state = 9;
    CHECK(fd >= 0 && unlink(path) == 0);
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)random_u64(&state);
    CHECK(write(fd, content, sizeof content) == FILE_BYTES);
    sds_file *file = open_file(fd);
    test_any_runs_equal_one_by_one(file);
    test_small_gaps_are_read_together(file);
    test_a_file_that_ends_early(file);
    test_offsets_beyond_4_gib();
    test_what_cannot_be_runs_is_refused(file);
    sds_file_close(file);
    close(fd);
    return 0;
}
