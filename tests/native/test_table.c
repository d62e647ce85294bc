#include <math.h>
#include <string.h>

#include "check.h"
#include "sds/table_format.h"
#include "table_layout.h"

static const sds_file_layout layout = {{1 << 20, 1}, {4096, 1, 4096}};
static const sds_cost_model model = {.kind = SDS_MODEL_EQ4,
                                     .gap = SDS_GAP_COUNT,
                                     .calibrated = 1,
                                     .n_terms = 4,
                                     .coefficient = {1e-4, 2e-5, 3e-6, 4e-3},
                                     .floor_s = 1e-5};

static void build(void **bytes, size_t *n)
{
    const sds_identity source = {11, INT64_C(1) << 33, 12, 13};
    const sds_identity replica = {21, INT64_C(1) << 20, 22, 23};
    const int64_t extent[3] = {4, 5, 6};
    const int32_t order[3] = {2, 0, 1};
    const int32_t other[3] = {1, 2, 0};
    const int64_t none[3] = {0, 0, 0};
    const int64_t box_start[3] = {1, 0, 2};
    const int64_t box_extent[3] = {2, 5, 4};
    const int64_t chunk[3] = {2, 2, 5};
    sds_table_dataset cube = {.path = "/entry/cube",
                              .rank = 3,
                              .extent = extent,
                              .element_bytes = 4,
                              .type_crc32c = 77,
                              .type_class = 1,
                              .storage = SDS_TABLE_CONTIGUOUS,
                              .data_offset_bytes = 2048,
                              .layout = layout,
                              .model = model};
    sds_table_dataset scalar = cube;
    scalar.path = "/scalar";
    scalar.rank = 0;
    scalar.extent = NULL;
    sds_table_dataset chunked = cube;
    chunked.path = "/chunked";
    chunked.storage = SDS_TABLE_CHUNKED;
    chunked.data_offset_bytes = 0;
    chunked.chunks = (sds_chunking){chunk, 333, 2e-9};
    sds_candidate candidate = {.replica_id = 5,
                               .path = "/home/replicas/a.h5",
                               .identity = replica,
                               .storage = SDS_TABLE_CONTIGUOUS,
                               .data_offset_bytes = 4096,
                               .metadata_crc32c = 99,
                               .rank = 3,
                               .order = order,
                               .region_start = none,
                               .region_extent = extent,
                               .layout = layout,
                               .model = model,
                               .shadow_permille = 1000};
    sds_table_builder *builder;
    CHECK(sds_table_builder_new("relative", &source, 7, &builder) == SDS_EINVAL);
    CHECK(sds_table_builder_new("/data/run.h5", &source, 7, &builder) == SDS_OK);
    CHECK(sds_table_builder_candidate(builder, &candidate) == SDS_EINVAL);
    CHECK(sds_table_builder_dataset(builder, &cube) == SDS_OK);
    CHECK(sds_table_builder_candidate(builder, &candidate) == SDS_OK);
    candidate.order = other;
    candidate.replica_id = 6;
    candidate.storage = SDS_TABLE_CHUNKED;
    candidate.data_offset_bytes = 0;
    candidate.metadata_crc32c = 0;
    candidate.chunks = (sds_chunking){chunk, 4444, 3e-9};
    candidate.region_start = box_start;
    candidate.region_extent = box_extent;
    CHECK(sds_table_builder_candidate(builder, &candidate) == SDS_OK);
    candidate.replica_id = 7;
    candidate.storage = SDS_TABLE_CONTIGUOUS;
    candidate.data_offset_bytes = 4096;
    candidate.metadata_crc32c = 98;
    candidate.chunks = (sds_chunking){0};
    candidate.tiles = (sds_tiles){.n = 3,
                                  .n_segments = 2,
                                  .shape = (const int64_t[]){2, 5, 4},
                                  .number = (const int64_t[]){0, 1, 3},
                                  .place = (const uint32_t[]){2, 0, 1},
                                  .segment_end = (const uint32_t[]){1, 3}};
    CHECK(sds_table_builder_candidate(builder, &candidate) == SDS_OK);
    CHECK(sds_table_builder_dataset(builder, &chunked) == SDS_OK);
    CHECK(sds_table_builder_dataset(builder, &scalar) == SDS_OK);
    CHECK(sds_table_builder_finish(builder, bytes, n) == SDS_OK);
    sds_table_builder_free(builder);
}

/* Every byte that an accessor can hand out; the sanitizers watch. */
static uint64_t walk(const sds_table *table)
{
    uint64_t sum = strlen(sds_table_source_path(table)) + sds_table_source_identity(table)->inode;
    for (int32_t i = 0; i < sds_table_n_datasets(table); i++) {
        sds_table_dataset dataset;
        CHECK(sds_table_dataset_at(table, i, &dataset) == SDS_OK);
        sum += strlen(dataset.path);
        for (int32_t axis = 0; axis < dataset.rank; axis++)
            sum += (uint64_t)dataset.extent[axis] + (uint64_t)dataset.chunks.shape[axis];
        for (int32_t j = 0; j < dataset.n_candidates; j++) {
            sds_candidate candidate;
            CHECK(sds_table_candidate_at(table, i, j, &candidate) == SDS_OK);
            sum += strlen(candidate.path);
            for (int32_t axis = 0; axis < candidate.rank; axis++)
                sum += (uint64_t)candidate.order[axis] + (uint64_t)candidate.chunks.shape[axis] +
                       (uint64_t)candidate.region_start[axis] +
                       (uint64_t)candidate.region_extent[axis];
            const sds_tiles *tiles = &candidate.tiles;
            for (int32_t axis = 0; axis < (tiles->n > 0 ? candidate.rank : 0); axis++)
                sum += (uint64_t)tiles->shape[axis] + (uint64_t)tiles->extent[axis];
            for (int32_t tile = 0; tile < tiles->n; tile++)
                sum += (uint64_t)tiles->number[tile] + tiles->place[tile];
            for (int32_t segment = 0; segment < tiles->n_segments; segment++)
                sum += tiles->segment_end[segment];
        }
    }
    return sum;
}

static void test_fields_survive(const void *bytes, size_t n)
{
    sds_table *table;
    CHECK(sds_table_from_bytes(bytes, n, &table) == SDS_OK);
    CHECK(strcmp(sds_table_source_path(table), "/data/run.h5") == 0);
    CHECK(sds_table_source_identity(table)->ctime_ns == 13);
    CHECK(sds_table_source_instance(table) == 7);
    CHECK(sds_table_n_datasets(table) == 3);
    int32_t index = -1;
    CHECK(sds_table_find(table, "/scalar", &index) == SDS_OK && index == 2);
    CHECK(sds_table_find(table, "/none", &index) == SDS_ENOENT);
    sds_table_dataset dataset;
    CHECK(sds_table_dataset_at(table, 0, &dataset) == SDS_OK);
    CHECK(dataset.rank == 3 && dataset.extent[2] == 6 && dataset.type_crc32c == 77);
    CHECK(memcmp(&dataset.model, &model, sizeof model) == 0);
    CHECK(dataset.n_candidates == 3 && dataset.storage == SDS_TABLE_CONTIGUOUS);
    CHECK(dataset.chunks.shape[2] == 0 && dataset.chunks.stored_bytes == 0);
    sds_candidate candidate;
    CHECK(sds_table_candidate_at(table, 0, 0, &candidate) == SDS_OK);
    CHECK(candidate.storage == SDS_TABLE_CONTIGUOUS && candidate.metadata_crc32c == 99);
    CHECK(candidate.region_start[2] == 0 && candidate.region_extent[2] == 6);
    CHECK(candidate.tiles.n == 0 && candidate.tiles.n_segments == 0);
    CHECK(sds_table_candidate_at(table, 0, 1, &candidate) == SDS_OK);
    CHECK(candidate.replica_id == 6 && candidate.order[0] == 1 && candidate.order[2] == 0);
    CHECK(candidate.identity.size_bytes == 1 << 20 && candidate.storage == SDS_TABLE_CHUNKED);
    CHECK(candidate.chunks.shape[2] == 5 && candidate.chunks.stored_bytes == 4444);
    CHECK(candidate.chunks.decode_s_per_byte == 3e-9);
    CHECK(candidate.region_start[0] == 1 && candidate.region_extent[2] == 4);
    CHECK(sds_table_candidate_at(table, 0, 2, &candidate) == SDS_OK);
    const sds_tiles *tiles = &candidate.tiles;
    CHECK(tiles->n == 3 && tiles->n_segments == 2 && tiles->extent[2] == 6);
    CHECK(tiles->shape[0] == 2 && tiles->shape[1] == 5 && tiles->shape[2] == 4);
    CHECK(tiles->number[1] == 1 && tiles->number[2] == 3);
    CHECK(tiles->place[0] == 2 && tiles->place[2] == 1);
    CHECK(tiles->segment_end[0] == 1 && tiles->segment_end[1] == 3);
    CHECK(sds_table_dataset_at(table, 1, &dataset) == SDS_OK);
    CHECK(dataset.storage == SDS_TABLE_CHUNKED && dataset.chunks.shape[0] == 2);
    CHECK(dataset.chunks.stored_bytes == 333 && dataset.chunks.decode_s_per_byte == 2e-9);
    CHECK(sds_table_candidate_at(table, 0, 3, &candidate) == SDS_ENOENT);
    CHECK(sds_table_candidate_at(table, 1, 0, &candidate) == SDS_ENOENT);
    CHECK(sds_table_dataset_at(table, 3, &dataset) == SDS_ENOENT);
    walk(table);
    sds_table_close(table);
}

static void test_another_version_is_told_apart(const uint8_t *bytes, size_t n)
{
    sds_table *table;
    uint8_t *copy = malloc(n);
    memcpy(copy, bytes, n);
    copy[8] = SDS_TABLE_VERSION + 1;
    CHECK(sds_table_from_bytes(copy, n, &table) == SDS_EVERSION);
    copy[8] = SDS_TABLE_VERSION - 1;
    CHECK(sds_table_from_bytes(copy, n, &table) == SDS_EVERSION);
    copy[0] ^= 1;
    CHECK(sds_table_from_bytes(copy, n, &table) == SDS_EFORMAT);
    free(copy);
}

static void test_every_truncation_and_flip_is_refused(const uint8_t *bytes, size_t n)
{
    sds_table *table;
    uint8_t *copy = malloc(n);
    for (size_t length = 0; length < n; length++)
        CHECK(sds_table_from_bytes(bytes, length, &table) == SDS_EFORMAT);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        memcpy(copy, bytes, n);
        copy[bit / 8] ^= (uint8_t)(1U << (bit % 8));
        CHECK(sds_table_from_bytes(copy, n, &table) != SDS_OK);
    }
    free(copy);
}

/* Mutations with a checksum made right again reach the checks behind it. */
static void test_mutations_are_refused_or_walk(const uint8_t *bytes, size_t n)
{
    uint64_t state = 7;
    int accepted = 0;
    uint8_t *copy = malloc(n);
    for (int round = 0; round < 200000; round++) {
        memcpy(copy, bytes, n);
        const int64_t edits = random_between(&state, 1, 4);
        for (int64_t edit = 0; edit < edits; edit++) {
            const size_t at = 12 + (size_t)random_between(&state, 0, (int64_t)n - 13);
            static const uint8_t edges[] = {0, 1, 0x7F, 0x80, 0xFF};
            copy[at] = random_u64(&state) % 2 ? edges[random_u64(&state) % sizeof edges]
                                              : (uint8_t)random_u64(&state);
        }
        uint64_t length = n;
        memcpy(copy + 16, &length, sizeof length);
        const uint32_t crc = sds__table_crc32c(copy, n);
        memcpy(copy + 12, &crc, sizeof crc);
        sds_table *table;
        const sds_status status = sds_table_from_bytes(copy, n, &table);
        CHECK(status == SDS_OK || status == SDS_EFORMAT);
        if (status == SDS_OK) {
            accepted++;
            walk(table);
            sds_table_close(table);
        }
    }
    CHECK(accepted > 0);
    free(copy);
}

/* A table of one cube of 4 x 5 x 6 with one candidate. */
static sds_status finish(const sds_table_dataset *dataset, const sds_candidate *candidate)
{
    const sds_identity source = {11, 100000, 12, 13};
    sds_table_builder *builder;
    void *bytes;
    size_t n;
    CHECK(sds_table_builder_new("/data/run.h5", &source, 7, &builder) == SDS_OK);
    CHECK(sds_table_builder_dataset(builder, dataset) == SDS_OK);
    CHECK(sds_table_builder_candidate(builder, candidate) == SDS_OK);
    const sds_status status = sds_table_builder_finish(builder, &bytes, &n);
    if (status == SDS_OK) free(bytes);
    sds_table_builder_free(builder);
    return status;
}

/* Each refusal differs from a table that is accepted in one value. */
static void test_chunks_and_regions_are_checked(void)
{
    const int64_t extent[3] = {4, 5, 6};
    const int64_t start[3] = {1, 0, 2};
    const int64_t box[3] = {3, 5, 4};
    const int64_t chunk[3] = {2, 2, 5};
    const int32_t order[3] = {2, 0, 1};
    const sds_table_dataset dataset = {.path = "/cube",
                                       .rank = 3,
                                       .extent = extent,
                                       .element_bytes = 4,
                                       .storage = SDS_TABLE_CHUNKED,
                                       .chunks = {chunk, 333, 2e-9},
                                       .layout = layout,
                                       .model = model};
    const sds_candidate candidate = {.path = "/a.h5",
                                     .identity = {21, 5000, 22, 23},
                                     .storage = SDS_TABLE_CHUNKED,
                                     .chunks = {chunk, 4444, 3e-9},
                                     .rank = 3,
                                     .order = order,
                                     .region_start = start,
                                     .region_extent = box,
                                     .layout = layout,
                                     .model = model};
    CHECK(finish(&dataset, &candidate) == SDS_OK);
    sds_table_dataset other = dataset;
    sds_candidate wrong = candidate;
#define REFUSED(subject, field, value)                                                             \
    do {                                                                                           \
        (subject).field = (value);                                                                 \
        CHECK(finish(&other, &wrong) == SDS_EINVAL);                                               \
        other = dataset;                                                                           \
        wrong = candidate;                                                                         \
    } while (0)
    const int64_t empty[3] = {2, 0, 5}, negative[3] = {2, -2, 5};
    const int64_t huge[3] = {INT64_C(1) << 31, INT64_C(1) << 31, 5};
    const int64_t outside[3] = {1, 0, 3}, below[3] = {-1, 0, 2}, longer[3] = {4, 5, 4};
    REFUSED(other, storage, SDS_TABLE_OTHER);
    REFUSED(other, storage, SDS_TABLE_CONTIGUOUS);
    REFUSED(other, storage, 3);
    REFUSED(other, chunks.shape, NULL);
    REFUSED(other, chunks.shape, empty);
    REFUSED(other, chunks.shape, negative);
    REFUSED(other, chunks.shape, huge);
    REFUSED(other, chunks.stored_bytes, -1);
    REFUSED(other, chunks.stored_bytes, 100001);
    REFUSED(other, chunks.decode_s_per_byte, -1e-9);
    REFUSED(other, chunks.decode_s_per_byte, (double)INFINITY);
    REFUSED(wrong, storage, SDS_TABLE_OTHER);
    REFUSED(wrong, storage, SDS_TABLE_CONTIGUOUS);
    REFUSED(wrong, storage, -1);
    REFUSED(wrong, data_offset_bytes, 8);
    REFUSED(wrong, metadata_crc32c, 1);
    REFUSED(wrong, chunks.shape, NULL);
    REFUSED(wrong, chunks.shape, negative);
    REFUSED(wrong, chunks.stored_bytes, 5001);
    REFUSED(wrong, chunks.decode_s_per_byte, (double)NAN);
    REFUSED(wrong, region_start, outside);
    REFUSED(wrong, region_start, below);
    REFUSED(wrong, region_extent, longer);
    REFUSED(wrong, region_extent, negative);
#undef REFUSED
    /* A contiguous part needs room for itself alone: 60 elements of 4 bytes. */
    wrong.storage = SDS_TABLE_CONTIGUOUS;
    wrong.chunks = (sds_chunking){0};
    wrong.data_offset_bytes = 5000 - 240;
    CHECK(finish(&other, &wrong) == SDS_OK);
    wrong.data_offset_bytes++;
    CHECK(finish(&other, &wrong) == SDS_EINVAL);
}

/* Each refusal differs from a table that is accepted in one value. */
static void test_tiles_are_checked(void)
{
    const int64_t extent[3] = {4, 5, 6}, zeros[3] = {0};
    const int64_t shape[3] = {2, 2, 4}; /* a grid of 2 x 3 x 2 */
    const int64_t number[5] = {0, 1, 4, 6, 11};
    const uint32_t place[5] = {3, 0, 4, 1, 2}, end[3] = {1, 4, 5};
    const int32_t order[3] = {2, 0, 1};
    const sds_table_dataset dataset = {.path = "/cube",
                                       .rank = 3,
                                       .extent = extent,
                                       .element_bytes = 4,
                                       .storage = SDS_TABLE_OTHER,
                                       .layout = layout,
                                       .model = model};
    const sds_candidate candidate = {.path = "/a.h5",
                                     .identity = {21, 1000 + 5 * 16 * 4, 22, 23},
                                     .storage = SDS_TABLE_CONTIGUOUS,
                                     .data_offset_bytes = 1000,
                                     .rank = 3,
                                     .order = order,
                                     .region_start = zeros,
                                     .region_extent = extent,
                                     .tiles = {.n = 5,
                                               .n_segments = 3,
                                               .shape = shape,
                                               .number = number,
                                               .place = place,
                                               .segment_end = end},
                                     .layout = layout,
                                     .model = model};
    CHECK(finish(&dataset, &candidate) == SDS_OK);
    sds_candidate wrong = candidate;
#define REFUSED(field, ...)                                                                        \
    do {                                                                                           \
        wrong.field = __VA_ARGS__;                                                                 \
        CHECK(finish(&dataset, &wrong) == SDS_EINVAL);                                             \
        wrong = candidate;                                                                         \
    } while (0)
    REFUSED(data_offset_bytes, 1001); /* the last tile ends behind the file */
    REFUSED(identity.size_bytes, 1000 + 5 * 16 * 4 - 1);
    REFUSED(tiles.shape, (const int64_t[]){2, 0, 4});
    REFUSED(tiles.shape, (const int64_t[]){2, -2, 4});
    REFUSED(tiles.shape, (const int64_t[]){2, 2, 7}); /* longer than the source */
    REFUSED(tiles.shape, (const int64_t[]){2, 2, 5}); /* more bytes than the file has */
    REFUSED(tiles.shape, (const int64_t[]){2, 2, INT64_MAX});
    REFUSED(tiles.number, (const int64_t[]){0, 1, 4, 6, 12}); /* outside of the grid */
    REFUSED(tiles.number, (const int64_t[]){-1, 1, 4, 6, 11});
    REFUSED(tiles.number, (const int64_t[]){0, 1, 1, 6, 11});
    REFUSED(tiles.number, (const int64_t[]){0, 4, 1, 6, 11});
    REFUSED(tiles.number, (const int64_t[]){0, 1, 4, 6, INT64_MAX});
    REFUSED(tiles.place, (const uint32_t[]){3, 0, 4, 1, 3});
    REFUSED(tiles.place, (const uint32_t[]){3, 0, 5, 1, 2});
    REFUSED(tiles.place, (const uint32_t[]){3, 0, UINT32_MAX, 1, 2});
    REFUSED(tiles.segment_end, (const uint32_t[]){0, 4, 5});
    REFUSED(tiles.segment_end, (const uint32_t[]){4, 4, 5});
    REFUSED(tiles.segment_end, (const uint32_t[]){4, 1, 5});
    REFUSED(tiles.segment_end, (const uint32_t[]){1, 3, 4}); /* a tile in no segment */
    REFUSED(tiles.segment_end, (const uint32_t[]){1, 4, 6});
    REFUSED(tiles.n_segments, 0);
    REFUSED(tiles.n_segments, 2);
    REFUSED(tiles.n_segments, -1);
    REFUSED(tiles.n, 4);
    REFUSED(tiles.n, -5);
    REFUSED(tiles.n, 0); /* segments without tiles */
    const int64_t chunk[3] = {2, 2, 4};
    wrong.storage = SDS_TABLE_CHUNKED;
    wrong.data_offset_bytes = 0;
    wrong.chunks = (sds_chunking){chunk, 100, 0};
    wrong.tiles = (sds_tiles){0};
    CHECK(finish(&dataset, &wrong) == SDS_OK);
    wrong.tiles = candidate.tiles;
    CHECK(finish(&dataset, &wrong) == SDS_EINVAL);
    wrong = candidate;
    sds_table_dataset other = dataset;
    other.rank = wrong.rank = 0; /* a scalar has no tiles */
    CHECK(finish(&other, &wrong) == SDS_EINVAL);
    wrong.tiles = (sds_tiles){0};
    CHECK(finish(&other, &wrong) == SDS_OK);
#undef REFUSED
}

/* One more than there may be; and no more bytes than an integer counts. */
static void test_many_and_large_tiles_are_refused(void)
{
    const int64_t n = SDS_TABLE_MAX_TILES + 1;
    const int64_t extent[1] = {n}, zero[1] = {0}, one[1] = {1};
    const int32_t order[1] = {0};
    int64_t *number = malloc((size_t)n * sizeof *number);
    uint32_t *place = malloc((size_t)n * sizeof *place), end[1];
    for (int64_t i = 0; i < n; i++) {
        number[i] = i;
        place[i] = (uint32_t)(n - 2 - i); /* of all but the last */
    }
    sds_table_dataset dataset = {.path = "/line",
                                 .rank = 1,
                                 .extent = extent,
                                 .element_bytes = 8,
                                 .layout = layout,
                                 .model = model};
    sds_candidate candidate = {.path = "/a.h5",
                               .identity = {21, INT64_MAX, 22, 23},
                               .storage = SDS_TABLE_CONTIGUOUS,
                               .rank = 1,
                               .order = order,
                               .region_start = zero,
                               .region_extent = extent,
                               .tiles = {.n = SDS_TABLE_MAX_TILES,
                                         .n_segments = 1,
                                         .shape = one,
                                         .number = number,
                                         .place = place,
                                         .segment_end = end},
                               .layout = layout,
                               .model = model};
    end[0] = SDS_TABLE_MAX_TILES;
    CHECK(finish(&dataset, &candidate) == SDS_OK);
    for (int64_t i = 0; i < n; i++)
        place[i] = (uint32_t)i;
    CHECK(finish(&dataset, &candidate) == SDS_OK);
    candidate.tiles.n++;
    end[0]++;
    CHECK(finish(&dataset, &candidate) == SDS_EINVAL);

    /* Two tiles of 2^62 bytes, of a source of just less than both: the second is cut off. */
    const int64_t long_tile[1] = {INT64_C(1) << 59}, long_extent[1] = {(INT64_C(1) << 60) - 1};
    dataset.extent = candidate.region_extent = long_extent;
    candidate.tiles.shape = long_tile;
    candidate.tiles.n = 1;
    end[0] = 1;
    CHECK(finish(&dataset, &candidate) == SDS_OK);
    candidate.tiles.n = 2;
    end[0] = 2;
    CHECK(finish(&dataset, &candidate) == SDS_EINVAL);
    free(number);
    free(place);
}

static void test_names_are_stable(void)
{
    char name[64];
    sds_table_name("", name);
    CHECK(strcmp(name, "6c62272e07bb014262b821756295c58d.sdst") == 0);
    sds_table_name("a", name);
    CHECK(strcmp(name, "d228cb696f1a8caf78912b704e4a8964.sdst") == 0);
}

int main(void)
{
    void *bytes;
    size_t n;
    build(&bytes, &n);
    test_fields_survive(bytes, n);
    test_another_version_is_told_apart(bytes, n);
    test_every_truncation_and_flip_is_refused(bytes, n);
    test_mutations_are_refused_or_walk(bytes, n);
    test_chunks_and_regions_are_checked();
    test_tiles_are_checked();
    test_many_and_large_tiles_are_refused();
    test_names_are_stable();
    free(bytes);
    return 0;
}
