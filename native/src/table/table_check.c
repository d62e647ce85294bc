/* Decides once whether bytes are a redirect table, so that nobody has to ask again. */
#include <math.h>
#include <string.h>

#include "sds/checksum.h"
#include "table_layout.h"

/* A table under examination. */
typedef struct {
    const uint8_t *bytes;
    size_t n;
} subject;

static int holds(const subject *table, uint64_t at, uint64_t length)
{
    return at <= table->n && length <= table->n - at;
}

/* A NUL-terminated string that begins with '/'. */
static int holds_path(const subject *table, uint32_t at)
{
    if (!holds(table, at, 2) || table->bytes[at] != '/') return 0;
    return memchr(table->bytes + at, 0, table->n - at) != NULL;
}

/* What the geometry takes. */
static int sound_size(int64_t bytes)
{
    return bytes > 0 && bytes <= INT64_C(1) << 50;
}

static int sound_layout(const sds__table_layout *layout)
{
    return sound_size(layout->stripe_bytes) && layout->stripe_count > 0 &&
           sound_size(layout->unit_bytes) && layout->data_disks > 0 &&
           sound_size(layout->min_request_bytes);
}

static int sound_model(const sds__table_model *model)
{
    switch (model->kind) {
    case SDS_MODEL_BUILTIN:
    case SDS_MODEL_EQ3:
    case SDS_MODEL_EQ4:
    case SDS_MODEL_EQ6:
    case SDS_MODEL_SERVICE:
    case SDS_MODEL_SIEVE:
        break;
    default:
        return 0;
    }
    if (model->gap < SDS_GAP_COUNT || model->gap > SDS_GAP_PAPER) return 0;
    if (model->calibrated != 0 && model->calibrated != 1) return 0;
    if (model->n_terms < 0 || model->n_terms > SDS_MODEL_TERMS) return 0;
    for (int term = 0; term < SDS_MODEL_TERMS; term++)
        if (!isfinite(model->coefficient[term])) return 0;
    return isfinite(model->floor_s) && model->floor_s >= 0;
}

/* The array's bytes; -1 where they do not fit in 63 bits. */
static int64_t array_bytes(int32_t rank, const int64_t extent[], int64_t element_bytes)
{
    int64_t total = element_bytes;
    int empty = 0;
    for (int32_t axis = 0; axis < rank; axis++) {
        if (extent[axis] < 0) return -1;
        if (extent[axis] == 0)
            empty = 1;
        else if (__builtin_mul_overflow(total, extent[axis], &total))
            return -1;
    }
    return empty ? 0 : total;
}

/* The array lies inside a file of size_bytes. */
static int fits(int64_t offset_bytes, int64_t length_bytes, int64_t size_bytes)
{
    return offset_bytes >= 0 && length_bytes >= 0 && size_bytes >= 0 &&
           offset_bytes <= size_bytes && length_bytes <= size_bytes - offset_bytes;
}

static int sound_order(int32_t rank, const int32_t order[])
{
    uint64_t seen = 0;
    for (int32_t axis = 0; axis < rank; axis++) {
        if (order[axis] < 0 || order[axis] >= rank) return 0;
        const uint64_t bit = UINT64_C(1) << order[axis];
        if (seen & bit) return 0;
        seen |= bit;
    }
    return 1;
}

/* An array of n numbers in the file; NULL where there is none. */
static const int64_t *find_numbers(const subject *table, uint32_t at, int64_t n)
{
    if (at % sizeof(int64_t) != 0 || !holds(table, at, (uint64_t)n * sizeof(int64_t))) return NULL;
    return (const int64_t *)(const void *)(table->bytes + at);
}

static int sound_chunking(const subject *table, const sds__table_chunking *chunks, int is_chunked,
                          int32_t rank, int64_t element_bytes, int64_t file_bytes)
{
    const int64_t *shape = find_numbers(table, chunks->shape_at, rank);
    if (shape == NULL || chunks->reserved != 0) return 0;
    if (is_chunked) {
        if (rank == 0 || array_bytes(rank, shape, element_bytes) <= 0) return 0;
        if (chunks->stored_bytes < 0 || chunks->stored_bytes > file_bytes) return 0;
        return isfinite(chunks->decode_s_per_byte) && chunks->decode_s_per_byte >= 0;
    }
    for (int32_t axis = 0; axis < rank; axis++)
        if (shape[axis] != 0) return 0;
    return chunks->stored_bytes == 0 && chunks->decode_s_per_byte == 0;
}

/* The region's bytes; -1 where it does not lie inside the extent. */
static int64_t region_bytes(const subject *table, const sds__table_candidate *candidate,
                            int32_t rank, const int64_t extent[], int64_t element_bytes)
{
    const int64_t *start = find_numbers(table, candidate->region_at, 2 * (int64_t)rank);
    if (start == NULL) return -1;
    const int64_t *length = start + rank;
    for (int32_t axis = 0; axis < rank; axis++)
        if (start[axis] < 0 || length[axis] < 0 || start[axis] > extent[axis] ||
            length[axis] > extent[axis] - start[axis])
            return -1;
    return array_bytes(rank, length, element_bytes);
}

/* Each place is that of one tile. */
static int sound_places(int64_t n, const uint32_t place[])
{
    uint64_t taken[SDS_TABLE_MAX_TILES / 64] = {0};
    for (int64_t i = 0; i < n; i++) {
        if (place[i] >= n) return 0;
        const uint64_t bit = UINT64_C(1) << place[i] % 64;
        if (taken[place[i] / 64] & bit) return 0;
        taken[place[i] / 64] |= bit;
    }
    return 1;
}

/* Numbers of a grid of tiles, ascending. The grid has no more tiles than the source has elements,
 * which fit in 63 bits. */
static int sound_numbers(int64_t n, const int64_t number[], int32_t rank, const int64_t shape[],
                         const int64_t extent[])
{
    int64_t n_grid = 1;
    for (int32_t axis = 0; axis < rank; axis++)
        n_grid *= (extent[axis] - 1) / shape[axis] + 1;
    for (int64_t i = 0; i < n; i++)
        if (number[i] < 0 || number[i] >= n_grid || (i > 0 && number[i] <= number[i - 1])) return 0;
    return 1;
}

static int sound_ends(int64_t n, const uint32_t end[], int64_t n_tiles)
{
    for (int64_t i = 0; i < n; i++)
        if (end[i] <= (i > 0 ? end[i - 1] : 0)) return 0;
    return end[n - 1] == n_tiles;
}

/* Bytes of the replica's dataset; -1 where its tiles are not sound. */
static int64_t tiles_bytes(const subject *table, const sds__table_candidate *candidate,
                           int32_t rank, const int64_t extent[], int64_t element_bytes)
{
    const int64_t n = candidate->n_tiles, n_segments = candidate->n_segments;
    if (rank == 0 || n > SDS_TABLE_MAX_TILES || n_segments < 1 || n_segments > n) return -1;
    const int64_t *shape = find_numbers(table, candidate->tiles_at, rank + n);
    if (shape == NULL) return -1;
    const uint64_t place_at = candidate->tiles_at + (uint64_t)(rank + n) * sizeof(int64_t);
    if (!holds(table, place_at, (uint64_t)(n + n_segments) * sizeof(uint32_t))) return -1;
    for (int32_t axis = 0; axis < rank; axis++)
        if (shape[axis] < 1 || shape[axis] > extent[axis]) return -1;
    const int64_t *number = shape + rank;
    const uint32_t *place = (const uint32_t *)(const void *)(table->bytes + place_at);
    if (!sound_numbers(n, number, rank, shape, extent) || !sound_places(n, place) ||
        !sound_ends(n_segments, place + n, n))
        return -1;
    const int64_t tile_bytes = array_bytes(rank, shape, element_bytes);
    int64_t nbytes;
    return tile_bytes < 0 || __builtin_mul_overflow(tile_bytes, n, &nbytes) ? -1 : nbytes;
}

static int has_no_tiles(const sds__table_candidate *candidate)
{
    return candidate->tiles_at == 0 && candidate->n_tiles == 0 && candidate->n_segments == 0;
}

static int sound_candidate(const subject *table, const sds__table_candidate *candidate,
                           int32_t rank, const int64_t extent[], int64_t element_bytes)
{
    if (!holds_path(table, candidate->path_at)) return 0;
    if (candidate->order_at % sizeof(int32_t) != 0) return 0;
    if (!holds(table, candidate->order_at, (uint64_t)rank * sizeof(int32_t))) return 0;
    const int32_t *order = (const int32_t *)(const void *)(table->bytes + candidate->order_at);
    if (!sound_order(rank, order)) return 0;
    int64_t nbytes = region_bytes(table, candidate, rank, extent, element_bytes);
    if (nbytes < 0 || candidate->reserved != 0) return 0;
    const int is_chunked = candidate->storage == SDS_TABLE_CHUNKED;
    if (!has_no_tiles(candidate)) {
        if (is_chunked) return 0;
        nbytes = tiles_bytes(table, candidate, rank, extent, element_bytes);
        if (nbytes < 0) return 0;
    }
    if (is_chunked) {
        if (candidate->data_offset_bytes != 0 || candidate->metadata_crc32c != 0) return 0;
    } else if (candidate->storage != SDS_TABLE_CONTIGUOUS ||
               !fits(candidate->data_offset_bytes, nbytes, candidate->identity.size_bytes)) {
        return 0;
    }
    if (!sound_chunking(table, &candidate->chunks, is_chunked, rank, element_bytes,
                        candidate->identity.size_bytes))
        return 0;
    if (candidate->shadow_permille < 0 || candidate->shadow_permille > 1000) return 0;
    return sound_layout(&candidate->layout) && sound_model(&candidate->model);
}

static int sound_dataset(const subject *table, const sds__table_header *header,
                         const sds__table_dataset *dataset)
{
    if (!holds_path(table, dataset->path_at)) return 0;
    if (dataset->rank < 0 || dataset->rank > SDS_MAX_RANK || dataset->element_bytes <= 0) return 0;
    const int64_t *extent = find_numbers(table, dataset->extent_at, dataset->rank);
    if (extent == NULL) return 0;
    const int64_t nbytes = array_bytes(dataset->rank, extent, dataset->element_bytes);
    if (nbytes < 0 || dataset->storage > SDS_TABLE_CHUNKED) return 0;
    if (dataset->storage == SDS_TABLE_CONTIGUOUS &&
        !fits(dataset->data_offset_bytes, nbytes, header->source.size_bytes))
        return 0;
    if (!sound_chunking(table, &dataset->chunks, dataset->storage == SDS_TABLE_CHUNKED,
                        dataset->rank, dataset->element_bytes, header->source.size_bytes))
        return 0;
    if (!sound_layout(&dataset->layout) || !sound_model(&dataset->model)) return 0;
    const sds__table_candidate *candidates =
        (const sds__table_candidate *)(const void *)(table->bytes + header->candidates_at);
    for (uint32_t i = 0; i < dataset->n_candidates; i++)
        if (!sound_candidate(table, &candidates[dataset->first_candidate + i], dataset->rank,
                             extent, dataset->element_bytes))
            return 0;
    return 1;
}

uint32_t sds__table_crc32c(const uint8_t *bytes, size_t n)
{
    static const uint8_t zeros[4];
    const size_t at = offsetof(sds__table_header, crc32c);
    uint32_t crc = sds_crc32c(0, bytes, at);
    crc = sds_crc32c(crc, zeros, sizeof zeros);
    return sds_crc32c(crc, bytes + at + sizeof zeros, n - at - sizeof zeros);
}

sds_status sds__table_check(const uint8_t *bytes, size_t n)
{
    sds__table_header header;
    const size_t version_end = offsetof(sds__table_header, version) + sizeof header.version;
    if (n < version_end || memcmp(bytes, SDS__TABLE_MAGIC, sizeof header.magic) != 0)
        return SDS_EFORMAT;
    /* Another version may place everything else differently, its checksum included. */
    memcpy(&header, bytes, n < sizeof header ? n : sizeof header);
    if (header.version == 0) return SDS_EFORMAT;
    if (header.version != SDS_TABLE_VERSION) return SDS_EVERSION;
    if (n < sizeof header || header.length_bytes != n) return SDS_EFORMAT;
    if (header.crc32c != sds__table_crc32c(bytes, n)) return SDS_EFORMAT;

    const subject table = {bytes, n};
    if (header.reserved != 0 || header.source.size_bytes < 0) return SDS_EFORMAT;
    if (!holds_path(&table, header.source_path_at)) return SDS_EFORMAT;
    if (header.n_datasets > INT32_MAX || header.n_candidates > INT32_MAX) return SDS_EFORMAT;
    if (header.datasets_at % 8 != 0 || header.candidates_at % 8 != 0) return SDS_EFORMAT;
    if (!holds(&table, header.datasets_at,
               (uint64_t)header.n_datasets * sizeof(sds__table_dataset)) ||
        !holds(&table, header.candidates_at,
               (uint64_t)header.n_candidates * sizeof(sds__table_candidate)))
        return SDS_EFORMAT;

    /* Each candidate belongs to one dataset, in order: the work is bounded by the file's length. */
    const sds__table_dataset *datasets =
        (const sds__table_dataset *)(const void *)(bytes + header.datasets_at);
    uint64_t candidates = 0;
    for (uint32_t i = 0; i < header.n_datasets; i++) {
        if (datasets[i].first_candidate != candidates) return SDS_EFORMAT;
        candidates += datasets[i].n_candidates;
        if (candidates > header.n_candidates) return SDS_EFORMAT;
        if (!sound_dataset(&table, &header, &datasets[i])) return SDS_EFORMAT;
    }
    return candidates == header.n_candidates ? SDS_OK : SDS_EFORMAT;
}
