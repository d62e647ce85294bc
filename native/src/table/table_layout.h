/* The bytes of a redirect table as C structs, and the one check that reading relies on.
 * Every field lies at its natural alignment, so the structs have no padding. */
#ifndef SDS_SRC_TABLE_LAYOUT_H
#define SDS_SRC_TABLE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "sds/status.h"
#include "sds/table_format.h"

#define SDS__TABLE_MAGIC "SDSTABLE"

typedef struct sds__table_header {
    char magic[8];
    uint32_t version;
    uint32_t crc32c;
    uint64_t length_bytes;
    sds_identity source;
    uint32_t source_path_at;
    uint32_t datasets_at;
    uint32_t n_datasets;
    uint32_t candidates_at;
    uint32_t n_candidates;
    uint32_t reserved;
    uint64_t source_instance;
} sds__table_header;

typedef struct sds__table_model {
    int32_t kind;
    int32_t gap;
    int32_t calibrated;
    int32_t n_terms;
    double coefficient[SDS_MODEL_TERMS];
    double floor_s;
} sds__table_model;

typedef struct sds__table_layout {
    int64_t stripe_bytes;
    int64_t stripe_count;
    int64_t unit_bytes;
    int64_t data_disks;
    int64_t min_request_bytes;
} sds__table_layout;

typedef struct sds__table_chunking {
    uint32_t shape_at;
    uint32_t reserved;
    int64_t stored_bytes;
    double decode_s_per_byte;
} sds__table_chunking;

typedef struct sds__table_dataset {
    uint32_t path_at;
    int32_t rank;
    uint32_t extent_at;
    int32_t type_class;
    int64_t element_bytes;
    uint32_t type_crc32c;
    uint32_t storage;
    int64_t data_offset_bytes;
    sds__table_layout layout;
    sds__table_model model;
    uint32_t first_candidate;
    uint32_t n_candidates;
    sds__table_chunking chunks;
} sds__table_dataset;

typedef struct sds__table_candidate {
    int64_t replica_id;
    uint32_t path_at;
    uint32_t metadata_crc32c;
    sds_identity identity;
    int64_t data_offset_bytes;
    uint32_t order_at;
    int32_t shadow_permille;
    sds__table_layout layout;
    sds__table_model model;
    uint32_t storage;
    uint32_t region_at;
    sds__table_chunking chunks;
    uint32_t tiles_at;
    uint32_t n_tiles;
    uint32_t n_segments;
    uint32_t reserved;
} sds__table_candidate;

_Static_assert(sizeof(sds__table_header) == 88, "documented in table_format.h");
_Static_assert(sizeof(sds__table_layout) == 40, "documented in table_format.h");
_Static_assert(sizeof(sds__table_model) == 88, "documented in table_format.h");
_Static_assert(sizeof(sds__table_chunking) == 24, "documented in table_format.h");
_Static_assert(sizeof(sds__table_dataset) == 200, "documented in table_format.h");
_Static_assert(sizeof(sds__table_candidate) == 240, "documented in table_format.h");
_Static_assert(sizeof(double) == 8, "IEEE 754 binary64");

/* The checksum that belongs into the header of these bytes. */
uint32_t sds__table_crc32c(const uint8_t *bytes, size_t n);

/* Everything an accessor takes for granted. bytes are aligned to 8. */
sds_status sds__table_check(const uint8_t *bytes, size_t n);

#endif
