#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "sds/table_format.h"
#include "table_layout.h"

/* Datasets and candidates are kept as they will be written; paths and arrays go to one pool, at
 * offsets that move by the pool's position when the table is finished. */
struct sds_table_builder {
    sds__table_header header;
    sds__buffer datasets;
    sds__buffer candidates;
    sds__buffer pool;
};

/* Bytes in the pool, aligned to 8; their offset. */
static uint32_t keep(sds_table_builder *builder, const void *bytes, size_t n)
{
    static const uint8_t zeros[8];
    sds__buffer *pool = &builder->pool;
    sds__put(pool, zeros, (8 - pool->n % 8) % 8);
    const size_t at = pool->n;
    sds__put(pool, bytes, n);
    if (pool->n > SDS_TABLE_MAX_BYTES) pool->failed = 1;
    return pool->failed ? 0 : (uint32_t)at;
}

static uint32_t keep_string(sds_table_builder *builder, const char *text)
{
    return keep(builder, text, strlen(text) + 1);
}

static sds__table_chunking keep_chunking(sds_table_builder *builder, const sds_chunking *from,
                                         int32_t rank)
{
    static const int64_t zeros[SDS_MAX_RANK];
    return (sds__table_chunking){
        .shape_at = keep(builder, from->shape != NULL ? from->shape : zeros,
                         (size_t)rank * sizeof(int64_t)),
        .stored_bytes = from->stored_bytes,
        .decode_s_per_byte = from->decode_s_per_byte,
    };
}

static uint32_t keep_region(sds_table_builder *builder, const sds_candidate *candidate)
{
    int64_t region[2 * SDS_MAX_RANK];
    const size_t n = (size_t)candidate->rank;
    if (n > 0) {
        memcpy(region, candidate->region_start, n * sizeof(int64_t));
        memcpy(region + n, candidate->region_extent, n * sizeof(int64_t));
    }
    return keep(builder, region, 2 * n * sizeof(int64_t));
}

/* Tiles follow each other in the pool as in the file; at 0 there is something else. */
static uint32_t keep_tiles(sds_table_builder *builder, const sds_tiles *tiles, int32_t rank)
{
    if (tiles->n <= 0 || tiles->n_segments < 0) return 0;
    const size_t n = (size_t)tiles->n;
    const uint32_t at = keep(builder, tiles->shape, (size_t)rank * sizeof(int64_t));
    sds__buffer *pool = &builder->pool;
    sds__put(pool, tiles->number, n * sizeof(int64_t));
    sds__put(pool, tiles->place, n * sizeof(uint32_t));
    sds__put(pool, tiles->segment_end, (size_t)tiles->n_segments * sizeof(uint32_t));
    if (pool->n > SDS_TABLE_MAX_BYTES) pool->failed = 1;
    return at;
}

static sds__table_layout layout_of(const sds_file_layout *from)
{
    return (sds__table_layout){
        .stripe_bytes = from->striping.stripe_bytes,
        .stripe_count = from->striping.stripe_count,
        .unit_bytes = from->raid.unit_bytes,
        .data_disks = from->raid.data_disks,
        .min_request_bytes = from->raid.min_request_bytes,
    };
}

static sds__table_model model_of(const sds_cost_model *from)
{
    sds__table_model model = {.kind = from->kind,
                              .gap = from->gap,
                              .calibrated = from->calibrated,
                              .n_terms = from->n_terms,
                              .floor_s = from->floor_s};
    memcpy(model.coefficient, from->coefficient, sizeof model.coefficient);
    return model;
}

sds_status sds_table_builder_new(const char *source_path, const sds_identity *identity,
                                 uint64_t instance, sds_table_builder **out)
{
    if (source_path == NULL || source_path[0] != '/') return SDS_EINVAL;
    sds_table_builder *builder = calloc(1, sizeof *builder);
    if (builder == NULL) return SDS_ENOMEM;
    memcpy(builder->header.magic, SDS__TABLE_MAGIC, sizeof builder->header.magic);
    builder->header.version = SDS_TABLE_VERSION;
    builder->header.source = *identity;
    builder->header.source_instance = instance;
    builder->header.source_path_at = keep_string(builder, source_path);
    *out = builder;
    return SDS_OK;
}

sds_status sds_table_builder_dataset(sds_table_builder *builder, const sds_table_dataset *dataset)
{
    if (dataset->rank < 0 || dataset->rank > SDS_MAX_RANK) return SDS_EINVAL;
    const sds__table_dataset row = {
        .path_at = keep_string(builder, dataset->path),
        .rank = dataset->rank,
        .extent_at = keep(builder, dataset->extent, (size_t)dataset->rank * sizeof(int64_t)),
        .type_class = dataset->type_class,
        .element_bytes = dataset->element_bytes,
        .type_crc32c = dataset->type_crc32c,
        .storage = (uint32_t)dataset->storage,
        .data_offset_bytes = dataset->data_offset_bytes,
        .layout = layout_of(&dataset->layout),
        .model = model_of(&dataset->model),
        .first_candidate = builder->header.n_candidates,
        .chunks = keep_chunking(builder, &dataset->chunks, dataset->rank),
    };
    sds__put(&builder->datasets, &row, sizeof row);
    builder->header.n_datasets++;
    return builder->pool.failed || builder->datasets.failed ? SDS_ENOMEM : SDS_OK;
}

sds_status sds_table_builder_candidate(sds_table_builder *builder, const sds_candidate *candidate)
{
    if (builder->header.n_datasets == 0 || builder->datasets.failed) return SDS_EINVAL;
    sds__table_dataset *datasets = (sds__table_dataset *)(void *)builder->datasets.bytes;
    sds__table_dataset *dataset = &datasets[builder->header.n_datasets - 1];
    if (candidate->rank != dataset->rank) return SDS_EINVAL;
    const sds__table_candidate row = {
        .replica_id = candidate->replica_id,
        .path_at = keep_string(builder, candidate->path),
        .metadata_crc32c = candidate->metadata_crc32c,
        .identity = candidate->identity,
        .data_offset_bytes = candidate->data_offset_bytes,
        .order_at = keep(builder, candidate->order, (size_t)candidate->rank * sizeof(int32_t)),
        .shadow_permille = candidate->shadow_permille,
        .layout = layout_of(&candidate->layout),
        .model = model_of(&candidate->model),
        .storage = (uint32_t)candidate->storage,
        .region_at = keep_region(builder, candidate),
        .chunks = keep_chunking(builder, &candidate->chunks, candidate->rank),
        .tiles_at = keep_tiles(builder, &candidate->tiles, candidate->rank),
        .n_tiles = (uint32_t)candidate->tiles.n,
        .n_segments = (uint32_t)candidate->tiles.n_segments,
    };
    sds__put(&builder->candidates, &row, sizeof row);
    dataset->n_candidates++;
    builder->header.n_candidates++;
    return builder->pool.failed || builder->candidates.failed ? SDS_ENOMEM : SDS_OK;
}

/* Pool offsets become file offsets. */
static void place_pool(sds__table_header *header, uint8_t *bytes, uint32_t pool_at)
{
    header->source_path_at += pool_at;
    sds__table_dataset *datasets = (sds__table_dataset *)(void *)(bytes + header->datasets_at);
    for (uint32_t i = 0; i < header->n_datasets; i++) {
        datasets[i].path_at += pool_at;
        datasets[i].extent_at += pool_at;
        datasets[i].chunks.shape_at += pool_at;
    }
    sds__table_candidate *candidates =
        (sds__table_candidate *)(void *)(bytes + header->candidates_at);
    for (uint32_t i = 0; i < header->n_candidates; i++) {
        candidates[i].path_at += pool_at;
        candidates[i].order_at += pool_at;
        candidates[i].region_at += pool_at;
        candidates[i].chunks.shape_at += pool_at;
        if (candidates[i].n_tiles > 0) candidates[i].tiles_at += pool_at;
    }
}

sds_status sds_table_builder_finish(sds_table_builder *builder, void **bytes, size_t *n)
{
    sds__table_header header = builder->header;
    if (builder->pool.failed || builder->datasets.failed || builder->candidates.failed)
        return SDS_ENOMEM;
    const size_t total =
        sizeof header + builder->datasets.n + builder->candidates.n + builder->pool.n;
    if (total > SDS_TABLE_MAX_BYTES) return SDS_ELIMIT;
    uint8_t *file = malloc(total);
    if (file == NULL) return SDS_ENOMEM;

    const size_t candidates_at = sizeof header + builder->datasets.n;
    const size_t pool_at = candidates_at + builder->candidates.n;
    header.length_bytes = total;
    header.datasets_at = (uint32_t)sizeof header;
    header.candidates_at = (uint32_t)candidates_at;
    if (builder->datasets.n > 0)
        memcpy(file + sizeof header, builder->datasets.bytes, builder->datasets.n);
    if (builder->candidates.n > 0)
        memcpy(file + candidates_at, builder->candidates.bytes, builder->candidates.n);
    memcpy(file + pool_at, builder->pool.bytes, builder->pool.n);
    place_pool(&header, file, (uint32_t)pool_at);
    memcpy(file, &header, sizeof header);
    header.crc32c = sds__table_crc32c(file, total);
    memcpy(file, &header, sizeof header);

    /* What a reader would refuse was an argument out of range. */
    if (sds__table_check(file, total) != SDS_OK) {
        free(file);
        return SDS_EINVAL;
    }
    *bytes = file;
    *n = total;
    return SDS_OK;
}

void sds_table_builder_free(sds_table_builder *builder)
{
    if (builder == NULL) return;
    sds__buffer_free(&builder->datasets);
    sds__buffer_free(&builder->candidates);
    sds__buffer_free(&builder->pool);
    free(builder);
}
