#include "sds/chunked_read.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define MAX_RANK 4
#define MAX_CHUNKS 1296
#define MAX_SPANS 12
#define MAX_BYTES (1 << 18)

/* A dataset, its file and a selection, all made up. */
typedef struct {
    sds_chunked_dataset dataset;
    uint8_t values[MAX_BYTES]; /* of the extent, in C order */
    int64_t index[MAX_CHUNKS * MAX_RANK], offset[MAX_CHUNKS], size[MAX_CHUNKS];
    uint32_t skipped[MAX_CHUNKS];
    sds_chunk_list chunks;
    sds_span spans[MAX_RANK][MAX_SPANS];
    sds_axis_spans axis[MAX_RANK];
    int64_t result_bytes;
} made;

static made it;
static uint8_t out[MAX_BYTES], expected[MAX_BYTES], stored[MAX_BYTES];
static char path[] = "/tmp/sds-test-chunked-XXXXXX";
static int fd;
static sds_file *file;

static void make_dataset(uint64_t *state)
{
    sds_chunked_dataset *dataset = &it.dataset;
    memset(dataset, 0, sizeof *dataset);
    dataset->rank = (int32_t)random_between(state, 1, MAX_RANK);
    dataset->element_bytes = random_between(state, 1, 9);
    for (int32_t k = 0; k < dataset->rank; k++) {
        dataset->extent[k] = random_between(state, 1, 6);
        dataset->chunk[k] = random_between(state, 1, 7);
    }
    dataset->n_filters = (int32_t)random_between(state, 0, 2);
    dataset->edges_unfiltered = (int32_t)random_between(state, 0, 1);
    for (int32_t k = 0; k < dataset->n_filters; k++) {
        dataset->filter[k].codec = k == 0 ? SDS_CODEC_SHUFFLE : SDS_CODEC_FLETCHER32;
        dataset->filter[k].option[0] = (uint32_t)dataset->element_bytes;
    }
    for (size_t i = 0; i < sizeof it.values; i++)
        it.values[i] = (uint8_t)random_u64(state);
}

/* Element number of an index of the extent. */
static int64_t element_at(const int64_t at[])
{
    int64_t element = 0;
    for (int32_t k = 0; k < it.dataset.rank; k++)
        element = element * it.dataset.extent[k] + at[k];
    return element;
}

/* The elements of a chunk as they are without filters; its number of bytes. */
static int64_t fill_chunk(const int64_t index[], uint8_t *elements)
{
    const sds_chunked_dataset *dataset = &it.dataset;
    int64_t within[MAX_RANK] = {0}, n = 0;
    for (;;) {
        int64_t at[MAX_RANK];
        int inside = 1;
        for (int32_t k = 0; k < dataset->rank; k++) {
            at[k] = index[k] * dataset->chunk[k] + within[k];
            inside &= at[k] < dataset->extent[k];
        }
        for (int64_t byte = 0; byte < dataset->element_bytes; byte++)
            elements[n++] =
                inside ? it.values[element_at(at) * dataset->element_bytes + byte] : 0xEE;
        int32_t k = dataset->rank - 1;
        while (k >= 0 && ++within[k] == dataset->chunk[k])
            within[k--] = 0;
        if (k < 0) return n;
    }
}

static int64_t apply_filters(const uint8_t *elements, int64_t n, uint32_t skipped, uint8_t *to)
{
    const sds_chunked_dataset *dataset = &it.dataset;
    memcpy(to, elements, (size_t)n);
    if (dataset->n_filters > 0 && !(skipped & 1)) {
        const int64_t element = dataset->element_bytes, count = n / element;
        for (int64_t i = 0; i < count; i++)
            for (int64_t byte = 0; byte < element; byte++)
                to[byte * count + i] = elements[i * element + byte];
    }
    if (dataset->n_filters > 1 && !(skipped & 2)) {
        const uint32_t sum = sds_fletcher32(to, (size_t)n);
        for (int i = 0; i < 4; i++)
            to[n++] = (uint8_t)(sum >> 8 * i);
    }
    return n;
}

/* Write every chunk, one behind the other with holes, and list them. */
static void make_chunks(uint64_t *state)
{
    const sds_chunked_dataset *dataset = &it.dataset;
    static uint8_t elements[MAX_BYTES];
    int64_t index[MAX_RANK] = {0}, offset = 0;
    size_t n = 0;
    CHECK(ftruncate(fd, 0) == 0);
    for (;;) {
        int is_edge = 0;
        for (int32_t k = 0; k < dataset->rank; k++)
            is_edge |= (index[k] + 1) * dataset->chunk[k] > dataset->extent[k];
        it.skipped[n] = (uint32_t)random_between(state, 0, 3) & (uint32_t)random_u64(state);
        const uint32_t skipped = dataset->edges_unfiltered && is_edge ? 3 : it.skipped[n];
        offset += random_between(state, 0, 2) * random_between(state, 0, 40);
        it.offset[n] = offset;
        it.size[n] = apply_filters(elements, fill_chunk(index, elements), skipped, stored);
        CHECK(pwrite(fd, stored, (size_t)it.size[n], offset) == it.size[n]);
        memcpy(it.index + n * (size_t)dataset->rank, index, (size_t)dataset->rank * sizeof *index);
        offset += it.size[n++];
        int32_t k = dataset->rank - 1;
        while (k >= 0 && ++index[k] * dataset->chunk[k] >= dataset->extent[k])
            index[k--] = 0;
        if (k < 0) break;
    }
    it.chunks = (sds_chunk_list){n, it.index, it.offset, it.size, it.skipped, NULL};
}

static void make_selection(uint64_t *state)
{
    it.result_bytes = it.dataset.element_bytes;
    for (int32_t k = 0; k < it.dataset.rank; k++) {
        sds_axis_spans *axis = &it.axis[k];
        const int64_t extent = it.dataset.extent[k];
        memset(axis, 0, sizeof *axis);
        if (random_between(state, 0, 1)) {
            axis->regular.length = random_between(state, 1, extent);
            axis->regular.first = random_between(state, 0, extent - axis->regular.length);
            axis->stride = axis->regular.length + random_between(state, 0, 2);
            const int64_t room = extent - axis->regular.first - axis->regular.length;
            axis->n = (size_t)random_between(state, 0, 1 + room / axis->stride);
            axis->result_length = (int64_t)axis->n * axis->regular.length;
        } else {
            int64_t at = random_between(state, 0, extent);
            while (at < extent && axis->n < MAX_SPANS) {
                const int64_t length = random_between(state, 1, extent - at);
                it.spans[k][axis->n++] = (sds_span){at, length, axis->result_length};
                axis->result_length += length;
                at += length + random_between(state, 0, 2);
            }
            axis->spans = it.spans[k];
        }
        it.result_bytes *= axis->result_length;
    }
}

/* What the result should be, element by element. */
static void select_slowly(void)
{
    const int64_t element = it.dataset.element_bytes;
    int64_t positions[MAX_RANK][8], picked[MAX_RANK] = {0}, at[MAX_RANK];
    for (int32_t k = 0; k < it.dataset.rank; k++) {
        const sds_axis_spans *axis = &it.axis[k];
        int64_t n = 0;
        for (size_t i = 0; i < axis->n; i++) {
            const sds_span span = axis->spans
                                      ? axis->spans[i]
                                      : (sds_span){axis->regular.first + (int64_t)i * axis->stride,
                                                   axis->regular.length, 0};
            for (int64_t j = 0; j < span.length; j++)
                positions[k][n++] = span.first + j;
        }
    }
    for (int64_t done = 0; done < it.result_bytes; done += element) {
        for (int32_t k = 0; k < it.dataset.rank; k++)
            at[k] = positions[k][picked[k]];
        memcpy(expected + done, it.values + element_at(at) * element, (size_t)element);
        int32_t k = it.dataset.rank - 1;
        while (k >= 0 && ++picked[k] == it.axis[k].result_length)
            picked[k--] = 0;
    }
}

static sds_status read_it(int32_t n_threads, int64_t window_bytes, sds_chunked_report *report)
{
    const sds_chunked_options options = {n_threads, window_bytes};
    memset(out, 0, sizeof out);
    return sds_read_chunks(file, &it.dataset, it.axis, NULL, &it.chunks, &options, out, report);
}

/* The same, leaving the elements of every chunk behind, and then from these alone. */
static void keep_and_copy(uint64_t *state)
{
    static uint8_t elements[MAX_BYTES], *kept[MAX_CHUNKS];
    int64_t chunk_bytes = it.dataset.element_bytes;
    for (int32_t k = 0; k < it.dataset.rank; k++)
        chunk_bytes *= it.dataset.chunk[k];
    for (size_t i = 0; i < it.chunks.n; i++) {
        kept[i] = malloc((size_t)chunk_bytes);
        CHECK(kept[i] != NULL);
    }
    it.chunks.kept = kept;
    sds_chunked_report report;
    CHECK(read_it((int32_t)random_between(state, 0, 3), 0, &report) == SDS_OK);
    CHECK(memcmp(out, expected, (size_t)it.result_bytes) == 0);
    memset(out, 0, sizeof out);
    CHECK(sds_copy_chunks(&it.dataset, it.axis, NULL, &it.chunks, out) == SDS_OK);
    CHECK(memcmp(out, expected, (size_t)it.result_bytes) == 0);
    for (size_t i = 0; i < it.chunks.n; i++) {
        CHECK(fill_chunk(it.index + i * (size_t)it.dataset.rank, elements) == chunk_bytes);
        CHECK(memcmp(kept[i], elements, (size_t)chunk_bytes) == 0);
        free(kept[i]);
    }
}

static void test_selections_of_any_dataset(void)
{
    uint64_t state = 7;
    for (int round = 0; round < 1200; round++) {
        make_dataset(&state);
        make_chunks(&state);
        make_selection(&state);
        select_slowly();
        sds_chunked_report report;
        CHECK(read_it((int32_t)random_between(&state, 0, 4), random_between(&state, 0, 300),
                      &report) == SDS_OK);
        CHECK(memcmp(out, expected, (size_t)it.result_bytes) == 0);
        if (round % 3 == 0) keep_and_copy(&state);
    }
}

static void test_points_of_any_dataset(void)
{
    static int64_t first[MAX_CHUNKS + 1], in_chunk[MAX_BYTES], in_result[MAX_BYTES];
    uint64_t state = 8;
    for (int round = 0; round < 1000; round++) {
        make_dataset(&state);
        make_chunks(&state);
        const sds_chunked_dataset *dataset = &it.dataset;
        int64_t n_in_chunk = 1, n = 0;
        for (int32_t k = 0; k < dataset->rank; k++)
            n_in_chunk *= dataset->chunk[k];
        for (size_t i = 0; i < it.chunks.n; i++) {
            first[i] = n;
            fill_chunk(it.index + i * (size_t)dataset->rank, stored);
            for (int64_t k = 0; k < n_in_chunk; k += random_between(&state, 1, 9)) {
                memcpy(expected + n * dataset->element_bytes, stored + k * dataset->element_bytes,
                       (size_t)dataset->element_bytes);
                in_chunk[n] = k;
                in_result[n] = n;
                n++;
            }
        }
        first[it.chunks.n] = n;
        sds_chunk_points points = {first, in_chunk, in_result, n};
        CHECK(sds_read_chunks(file, dataset, NULL, &points, &it.chunks, NULL, out, NULL) == SDS_OK);
        CHECK(memcmp(out, expected, (size_t)(n * dataset->element_bytes)) == 0);
        in_chunk[n - 1] = n_in_chunk;
        CHECK(sds_read_chunks(file, dataset, NULL, &points, &it.chunks, NULL, out, NULL) ==
              SDS_EINVAL);
    }
}

/* Four chunks of 64 KiB, with a checksum each. */
static void make_four(void)
{
    static uint8_t elements[1 << 16];
    memset(&it.dataset, 0, sizeof it.dataset);
    it.dataset.rank = 1;
    it.dataset.extent[0] = 4 << 13;
    it.dataset.chunk[0] = 1 << 13;
    it.dataset.element_bytes = 8;
    it.dataset.n_filters = 1;
    it.dataset.filter[0].codec = SDS_CODEC_FLETCHER32;
    for (int64_t i = 0; i < 4; i++) {
        memset(elements, (int)i, sizeof elements);
        const uint32_t sum = sds_fletcher32(elements, sizeof elements);
        it.index[i] = i;
        it.skipped[i] = 0;
        it.size[i] = sizeof elements + 4;
        it.offset[i] = i * it.size[i];
        CHECK(pwrite(fd, elements, sizeof elements, it.offset[i]) == sizeof elements);
        CHECK(pwrite(fd, &sum, 4, it.offset[i] + (int64_t)sizeof elements) == 4);
    }
    it.chunks = (sds_chunk_list){4, it.index, it.offset, it.size, it.skipped, NULL};
    it.axis[0] = (sds_axis_spans){1, NULL, {0, 4 << 13, 0}, 4 << 13, 4 << 13};
    it.result_bytes = 4 << 16;
}

static void test_damage_and_lies_are_found(void)
{
    sds_chunked_report report;
    for (int32_t n_threads = 1; n_threads < 4; n_threads++) {
        make_four();
        CHECK(read_it(n_threads, 1, &report) == SDS_OK && out[3 << 16] == 3);
        CHECK(report.chunks == 4 && report.bytes_read == 4 * it.size[0]);
        CHECK(pwrite(fd, "x", 1, it.offset[2] + 100) == 1);
        CHECK(read_it(n_threads, 1, &report) == SDS_EFORMAT);
        make_four();
        CHECK(ftruncate(fd, it.offset[3] + 5) == 0);
        CHECK(read_it(n_threads, 1, &report) == SDS_ESHORT);
    }
    make_four();
    it.size[1] = INT64_MAX - it.offset[1];
    CHECK(read_it(2, 0, &report) == SDS_EFORMAT);
    it.size[1] = INT64_MAX;
    CHECK(read_it(2, 0, &report) == SDS_EOVERFLOW);
    make_four();
    it.offset[2] = it.offset[1]; /* twice the same bytes */
    CHECK(read_it(2, 0, &report) == SDS_EFORMAT);
    make_four();
    it.size[3] -= 1;
    CHECK(read_it(2, 0, &report) == SDS_EFORMAT);
    make_four();
    it.index[1] = 4;
    CHECK(read_it(2, 0, &report) == SDS_EINVAL);
    make_four();
    it.axis[0].regular.first = 1;
    CHECK(read_it(2, 0, &report) == SDS_EINVAL);
    make_four();
    it.dataset.chunk[0] = INT64_MAX;
    CHECK(read_it(2, 0, &report) == SDS_EOVERFLOW);
}

int main(void)
{
    fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0);
    CHECK(sds_file_open(fd, NULL, &file) == SDS_OK);
    test_selections_of_any_dataset();
    test_points_of_any_dataset();
    test_damage_and_lies_are_found();
    sds_file_close(file);
    close(fd);
    return 0;
}
