#include "sds/table_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "small_file.h"
#include "table_layout.h"

struct sds_table {
    uint8_t *bytes; /* own copy, checked */
    size_t n;
    sds_identity source;
    uint32_t owner;
    uint32_t mode;
};

/* FNV-1a over 128 bits (RFC 9923): a name, not a proof; the table holds the whole path. */
__extension__ typedef unsigned __int128 wide;

void sds_table_name(const char *canonical_path, char out[64])
{
    const wide prime = ((wide)1 << 88) + 0x13B;
    wide hash = ((wide)0x6C62272E07BB0142 << 64) | 0x62B821756295C58D;
    for (const char *c = canonical_path; *c != '\0'; c++) {
        hash ^= (uint8_t)*c;
        hash *= prime;
    }
    snprintf(out, 64, "%016llx%016llx.sdst", (unsigned long long)(hash >> 64),
             (unsigned long long)hash);
}

/* Takes bytes over, also where it fails. */
static sds_status adopt(uint8_t *bytes, size_t n, uint32_t owner, uint32_t mode, sds_table **out)
{
    const sds_status status = sds__table_check(bytes, n);
    sds_table *table = status == SDS_OK ? malloc(sizeof *table) : NULL;
    if (table == NULL) {
        free(bytes);
        return status == SDS_OK ? SDS_ENOMEM : status;
    }
    table->bytes = bytes;
    table->n = n;
    table->owner = owner;
    table->mode = mode;
    memcpy(&table->source, bytes + offsetof(sds__table_header, source), sizeof table->source);
    *out = table;
    return SDS_OK;
}

sds_status sds_table_open(const char *path, sds_table **out)
{
    sds__small_file file;
    const sds_status status = sds__small_file_read(path, SDS_TABLE_MAX_BYTES, &file);
    return status == SDS_OK ? adopt(file.bytes, file.n, file.owner, file.mode, out) : status;
}

sds_status sds_table_from_bytes(const void *bytes, size_t n, sds_table **out)
{
    if (n > SDS_TABLE_MAX_BYTES) return SDS_EFORMAT;
    uint8_t *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL) return SDS_ENOMEM;
    if (n > 0) memcpy(copy, bytes, n);
    return adopt(copy, n, 0, 0, out);
}

void sds_table_close(sds_table *table)
{
    if (table == NULL) return;
    free(table->bytes);
    free(table);
}

static const sds__table_header *header_of(const sds_table *table)
{
    return (const sds__table_header *)(const void *)table->bytes;
}

static const sds__table_dataset *dataset_of(const sds_table *table, int32_t i)
{
    const void *at = table->bytes + header_of(table)->datasets_at;
    return (const sds__table_dataset *)at + i;
}

static const char *string_at(const sds_table *table, uint32_t at)
{
    return (const char *)table->bytes + at;
}

static sds_file_layout layout_of(const sds__table_layout *from)
{
    return (sds_file_layout){
        .striping = {.stripe_bytes = from->stripe_bytes, .stripe_count = from->stripe_count},
        .raid = {.unit_bytes = from->unit_bytes,
                 .data_disks = from->data_disks,
                 .min_request_bytes = from->min_request_bytes},
    };
}

static sds_cost_model model_of(const sds__table_model *from)
{
    sds_cost_model model = {.kind = from->kind,
                            .gap = from->gap,
                            .calibrated = from->calibrated,
                            .n_terms = from->n_terms,
                            .floor_s = from->floor_s};
    memcpy(model.coefficient, from->coefficient, sizeof model.coefficient);
    return model;
}

static const int64_t *numbers_at(const sds_table *table, uint32_t at)
{
    return (const int64_t *)(const void *)(table->bytes + at);
}

static sds_chunking chunking_of(const sds_table *table, const sds__table_chunking *from)
{
    return (sds_chunking){.shape = numbers_at(table, from->shape_at),
                          .stored_bytes = from->stored_bytes,
                          .decode_s_per_byte = from->decode_s_per_byte};
}

const char *sds_table_source_path(const sds_table *table)
{
    return string_at(table, header_of(table)->source_path_at);
}

const sds_identity *sds_table_source_identity(const sds_table *table)
{
    return &table->source;
}

uint64_t sds_table_source_instance(const sds_table *table)
{
    return header_of(table)->source_instance;
}

uint32_t sds_table_owner(const sds_table *table)
{
    return table->owner;
}

uint32_t sds_table_mode(const sds_table *table)
{
    return table->mode;
}

int64_t sds_table_bytes(const sds_table *table)
{
    return (int64_t)table->n;
}

int32_t sds_table_n_datasets(const sds_table *table)
{
    return (int32_t)header_of(table)->n_datasets;
}

sds_status sds_table_dataset_at(const sds_table *table, int32_t i, sds_table_dataset *out)
{
    if (i < 0 || i >= sds_table_n_datasets(table)) return SDS_ENOENT;
    const sds__table_dataset *from = dataset_of(table, i);
    *out = (sds_table_dataset){
        .path = string_at(table, from->path_at),
        .rank = from->rank,
        .extent = numbers_at(table, from->extent_at),
        .element_bytes = from->element_bytes,
        .type_crc32c = from->type_crc32c,
        .type_class = from->type_class,
        .storage = (int32_t)from->storage,
        .data_offset_bytes = from->data_offset_bytes,
        .chunks = chunking_of(table, &from->chunks),
        .layout = layout_of(&from->layout),
        .model = model_of(&from->model),
        .n_candidates = (int32_t)from->n_candidates,
    };
    return SDS_OK;
}

sds_status sds_table_find(const sds_table *table, const char *dataset_path, int32_t *index)
{
    const int32_t n = sds_table_n_datasets(table);
    for (int32_t i = 0; i < n; i++)
        if (strcmp(string_at(table, dataset_of(table, i)->path_at), dataset_path) == 0) {
            *index = i;
            return SDS_OK;
        }
    return SDS_ENOENT;
}

static sds_tiles tiles_of(const sds_table *table, const sds__table_dataset *of,
                          const sds__table_candidate *from)
{
    if (from->n_tiles == 0) return (sds_tiles){0};
    const int64_t *shape = numbers_at(table, from->tiles_at);
    const int64_t *number = shape + of->rank;
    const uint32_t *place = (const uint32_t *)(const void *)(number + from->n_tiles);
    return (sds_tiles){.n = (int32_t)from->n_tiles,
                       .n_segments = (int32_t)from->n_segments,
                       .extent = numbers_at(table, of->extent_at),
                       .shape = shape,
                       .number = number,
                       .place = place,
                       .segment_end = place + from->n_tiles};
}

sds_status sds_table_candidate_at(const sds_table *table, int32_t dataset, int32_t i,
                                  sds_candidate *out)
{
    if (dataset < 0 || dataset >= sds_table_n_datasets(table)) return SDS_ENOENT;
    const sds__table_dataset *of = dataset_of(table, dataset);
    if (i < 0 || (uint32_t)i >= of->n_candidates) return SDS_ENOENT;
    const void *at = table->bytes + header_of(table)->candidates_at;
    const sds__table_candidate *from = (const sds__table_candidate *)at + of->first_candidate + i;
    const int64_t *region = numbers_at(table, from->region_at);
    *out = (sds_candidate){
        .replica_id = from->replica_id,
        .path = string_at(table, from->path_at),
        .identity = from->identity,
        .storage = (int32_t)from->storage,
        .data_offset_bytes = from->data_offset_bytes,
        .metadata_crc32c = from->metadata_crc32c,
        .chunks = chunking_of(table, &from->chunks),
        .rank = of->rank,
        .order = (const int32_t *)(const void *)(table->bytes + from->order_at),
        .region_start = region,
        .region_extent = region + of->rank,
        .tiles = tiles_of(table, of, from),
        .layout = layout_of(&from->layout),
        .model = model_of(&from->model),
        .shadow_permille = from->shadow_permille,
    };
    return SDS_OK;
}
