/* The redirect table: which replicas of one source file may serve reads, and what each read costs.
 *
 * One file per source under SDS_HOME/tables, named by sds_table_name(), replaced by atomic rename,
 * mapped read-only by the connector. Little-endian, checksummed as a whole.
 * (The byte layout is described at the top of this header by its implementer.)
 */
#ifndef SDS_TABLE_FORMAT_H
#define SDS_TABLE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "sds/cost.h"
#include "sds/geometry.h"
#include "sds/identity.h"
#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SDS_TABLE_VERSION 1

/* A file of the table's file system: how its bytes are dealt to disks. */
typedef struct sds_file_layout {
    sds_striping striping;
    sds_raid raid;
} sds_file_layout;

/* One replica of one dataset; contiguous, axis i is source axis order[i]. Pointers are into the
 * mapped table. */
typedef struct sds_candidate {
    int64_t replica_id;
    const char *path;             /* absolute path of the replica file */
    sds_identity identity;        /* of the replica file when the table was written */
    int64_t data_offset_bytes;    /* first byte of the dataset in it */
    uint32_t metadata_crc32c;     /* of every byte of the file outside the dataset's bytes */
    int32_t rank;
    const int32_t *order;
    sds_file_layout layout;
    sds_cost_model model;         /* time of a read from this replica */
    int32_t shadow_permille;      /* share of reads to serve; 1000: active */
} sds_candidate;

typedef struct sds_table_dataset {
    const char *path;             /* absolute HDF5 path, e.g. "/entry/cube" */
    int32_t rank;
    const int64_t *extent;
    int64_t element_bytes;
    uint32_t type_crc32c;         /* CRC-32C of the H5Tencode'd file type, version-neutral parts: see header */
    int32_t type_class;           /* H5T_class_t */
    int32_t contiguous;           /* 1: source stored contiguously at data_offset_bytes */
    int64_t data_offset_bytes;
    sds_file_layout layout;
    sds_cost_model model;         /* time of a read from the original through HDF5 */
    int32_t n_candidates;
} sds_table_dataset;

typedef struct sds_table sds_table;

/* Name of the table of a canonical source path: 32 hex digits and ".sdst", NUL included in 64. */
void sds_table_name(const char *canonical_path, char out[64]);

/* Map and check a table. SDS_EIO (errno; ENOENT: there is none), SDS_EFORMAT, SDS_EVERSION. */
sds_status sds_table_open(const char *path, sds_table **out);
/* The same from bytes, which must outlive the table. */
sds_status sds_table_from_bytes(const void *bytes, size_t n, sds_table **out);
void sds_table_close(sds_table *table);

const char *sds_table_source_path(const sds_table *table);
const sds_identity *sds_table_source_identity(const sds_table *table);
/* Owner and mode of the table file as opened (0, 0 from bytes). */
uint32_t sds_table_owner(const sds_table *table);
uint32_t sds_table_mode(const sds_table *table);
int32_t sds_table_n_datasets(const sds_table *table);
sds_status sds_table_dataset_at(const sds_table *table, int32_t i, sds_table_dataset *out);
/* SDS_ENOENT where the table does not name it. */
sds_status sds_table_find(const sds_table *table, const char *dataset_path, int32_t *index);
sds_status sds_table_candidate_at(const sds_table *table, int32_t dataset, int32_t i,
                                  sds_candidate *out);

/* Building: a table is encoded whole. Strings and arrays are copied. */
typedef struct sds_table_builder sds_table_builder;
sds_status sds_table_builder_new(const char *source_path, const sds_identity *identity,
                                 sds_table_builder **out);
sds_status sds_table_builder_dataset(sds_table_builder *builder, const sds_table_dataset *dataset);
/* Adds to the dataset added last. */
sds_status sds_table_builder_candidate(sds_table_builder *builder, const sds_candidate *candidate);
/* *bytes is released with free(). */
sds_status sds_table_builder_finish(sds_table_builder *builder, void **bytes, size_t *n);
void sds_table_builder_free(sds_table_builder *builder);

#ifdef __cplusplus
}
#endif
#endif
