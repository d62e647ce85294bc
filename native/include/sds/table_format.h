/* The redirect table: which replicas of one source file may serve reads, and what each read costs.
 *
 * One file per source under SDS_HOME/tables, named by sds_table_name(), mode 0600, replaced by
 * atomic rename. A few kilobytes: the reader takes the whole file into memory instead of mapping
 * it, because a file that shrinks under a mapping ends the program with SIGBUS, and because what
 * was checked must be what is used.
 *
 * Bytes. Little-endian; every field at its natural alignment; offsets ("at") count from the start
 * of the file. u32, i64: integers; f64: IEEE 754 binary64.
 *
 * Header, 88 bytes:
 *     0  char[8]  "SDSTABLE"
 *     8  u32      version, 4. A reader refuses any other without looking further: the server
 *                 writes a table of another version anew from its catalog, and until then
 *                 programs read the original.
 *    12  u32      CRC-32C of the whole file, these four bytes taken as zero
 *    16  u64      length of the file, bytes
 *    24  identity of the source file (32 bytes, below)
 *    56  u32      at: path of the source
 *    60  u32      at: datasets, multiple of 8
 *    64  u32      number of datasets
 *    68  u32      at: candidates, multiple of 8
 *    72  u32      number of candidates, of all datasets
 *    76  u32      0
 *    80  u64      instance of the source's file system (file_system.h); 0: it is not compared
 * Identity, 32 bytes: u64 inode; i64 size, bytes; i64 mtime, ns; i64 ctime, ns.
 * File layout, 40 bytes: i64 stripe size, bytes; i64 stripe count; i64 RAID unit, bytes; i64 data
 *     disks; i64 smallest request, bytes. All positive, sizes at most 2^50.
 * Cost model, 88 bytes: i32 kind; i32 gap; i32 calibrated (0 or 1); i32 number of terms; f64[8]
 *     coefficients; f64 floor, seconds (cost.h). All finite.
 * Dataset, 200 bytes each:
 *     0  u32      at: path
 *     4  i32      rank, 0 to 32
 *     8  u32      at: extent, i64[rank], multiple of 8
 *    12  i32      type class (H5T_class_t)
 *    16  i64      bytes per element, positive
 *    24  u32      type_crc32c, below
 *    28  u32      storage of the source: 0 other than these, 1 contiguous, 2 chunked
 *    32  i64      contiguous: file offset of its first byte. It lies inside the source's size.
 *    40  file layout of the source
 *    80  cost model of a read from the source through HDF5
 *   168  u32      index of its first candidate
 *   172  u32      number of its candidates; those of the next dataset follow on
 *   176  chunking of the source
 * Candidate, 240 bytes each:
 *     0  i64      id of the replica
 *     8  u32      at: path of the replica's file
 *    12  u32      contiguous: CRC-32C of every byte of that file outside the dataset's bytes;
 *                 chunked: 0, HDF5's own checksums protect it
 *    16  identity of that file
 *    48  i64      contiguous: file offset of the dataset's first byte; it lies inside the file's
 *                 size, as does all of the dataset; chunked: 0
 *    56  u32      at: axis order, i32[rank], multiple of 4
 *    60  i32      share of reads that it may serve, permille, 0 to 1000
 *    64  file layout of the replica
 *   104  cost model of a read from the replica: through the read engine where it is contiguous,
 *        through HDF5 where it is chunked
 *   192  u32      storage of the replica: 1 contiguous, 2 chunked
 *   196  u32      at: region, i64[2*rank], multiple of 8: start per axis, then extent per axis, in
 *                 the axes of the source: the box that the replica holds. It lies inside the
 *                 source's extent. Axis i of the replica is as long as the box on axis order[i].
 *                 Of a replica of segments: the box around them.
 *   200  chunking of the replica, in its own axes
 *   224  u32      at: tiles, multiple of 8; 0: the replica holds all of its region
 *   228  u32      number of tiles, 1 to 16384; 0 where there are none
 *   232  u32      number of segments, 1 to that of tiles; 0 where there are none
 *   236  u32      0
 * Tiles of a contiguous replica that holds boxes from all over the source, all of one shape, of a
 * grid that begins at the source's origin; those at the end of an axis are cut off there. Its
 * dataset has one axis more than the source: element k of the first is a tile, whose axis 1 + i is
 * source axis order[i]; it takes the room of a whole tile also where one is cut off. In the
 * sequence of their places tiles make segments, that is what is read one after the other:
 *     i64[rank]      shape of a tile in the axes of the source, 1 to the extent
 *     i64[tiles]     number of each tile in the grid, the last axis fastest, ascending
 *     u32[tiles]     place of each in the replica: 0 to tiles - 1, none twice
 *     u32[segments]  place behind the last tile of each segment, ascending; the last is that of all
 * Chunking, 24 bytes: u32 at: chunk shape, i64[rank], multiple of 8, each positive where chunked,
 *     0 where not; u32 0; i64 bytes of all stored chunks, at most the file's size; f64 seconds
 *     that undoing the filters takes per decoded byte, finite, not negative. The last two are 0
 *     where not chunked.
 * Paths end with NUL and begin with '/'. They, extents, orders, regions, chunk shapes and tiles
 * follow the candidates, each padded with zeros to a multiple of 8; several may share bytes.
 *
 * type_crc32c is the CRC-32C of a text that says what the elements are, the same in every version
 * of HDF5, unlike H5Tencode. "%d" and "%zu" are decimal without padding; no spaces, no NUL:
 *     integer    "i" size order sign offset precision     i4<s0:32      H5T_INTEGER
 *     float      "f" size order offset precision fields   f4<0:32{31,23,8,0,23,127,0}  H5T_FLOAT
 *     bit field  "b" size order offset precision          b1<0:8        H5T_BITFIELD
 *     string     "s" size padding charset                 s12z0         H5T_STRING, fixed length
 *     opaque     "o" size "[" tag "]"                     o16[uuid]     H5T_OPAQUE
 *     enum       "e" base "{" name "=" value ";" ... "}"  ei1<s0:8{OFF=00;ON=01;}  H5T_ENUM
 *     compound   "c" size "{" name "@" offset ":" type ";" ... "}"      H5T_COMPOUND
 *     array      "a[" extent "," ... "]" base             a[3,3,]i4<s0:32  H5T_ARRAY
 * size: H5Tget_size. order: "<" for H5T_ORDER_LE or H5T_ORDER_NONE, ">" for H5T_ORDER_BE; others
 * (VAX, mixed) are not identified. sign: "s" for H5T_SGN_2, "u" for H5T_SGN_NONE. offset ":"
 * precision: H5Tget_offset, H5Tget_precision. fields, from H5Tget_fields (the sign's position, the
 * exponent's position and size, the mantissa's position and size), then H5Tget_ebias and
 * H5Tget_norm as integers, separated by commas. padding: "t" for H5T_STR_NULLTERM, "z" for
 * H5T_STR_NULLPAD, "s" for H5T_STR_SPACEPAD; charset: H5Tget_cset as an integer. Members in the
 * order of their index; names as their bytes are, with each of \ { } = ; @ : [ ] preceded by a
 * backslash (tags too); an enum's value as two lower-case hexadecimal digits per byte, in the
 * order in which they lie in the file. Extents of an array end each with a comma.
 * Variable-length, reference, time and complex types, and bit fields narrower than their bytes,
 * alone or inside another, have no such text: a dataset of such a type is not in a table.
 * sds/hdf5/type_digest.py computes the same.
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

#define SDS_TABLE_VERSION 4
#define SDS_TABLE_MAX_BYTES (64 << 20) /* a larger one is refused */
#define SDS_TABLE_MAX_TILES (1 << 14)  /* of one replica: every program reads their list */

/* A file of the table's file system: how its bytes are dealt to disks. */
typedef struct sds_file_layout {
    sds_striping striping;
    sds_raid raid;
} sds_file_layout;

typedef enum sds_table_storage {
    SDS_TABLE_OTHER = 0, /* compact, nothing written yet: never redirected */
    SDS_TABLE_CONTIGUOUS = 1,
    SDS_TABLE_CHUNKED = 2
} sds_table_storage;

/* Chunks of a dataset. Where it is not chunked, shape is all zeros (NULL in a builder's argument
 * means the same) and the others are 0. */
typedef struct sds_chunking {
    const int64_t *shape;     /* elements per axis */
    int64_t stored_bytes;     /* of all chunks, as filtered */
    double decode_s_per_byte; /* time of undoing the filters, per decoded byte */
} sds_chunking;

/* Tiles that a replica holds instead of all of its region. */
typedef struct sds_tiles {
    int32_t n; /* 0: the replica holds all of its region, and nothing else here counts */
    int32_t n_segments;
    const int64_t *extent;       /* the source's; a builder has it of the dataset */
    const int64_t *shape;        /* elements of a tile per axis of the source */
    const int64_t *number;       /* of each in the grid of tiles, ascending; NULL: all are held */
    const uint32_t *place;       /* of each in the replica; NULL with number */
    const uint32_t *segment_end; /* place behind the last tile of each segment */
} sds_tiles;

/* One replica of one dataset, of a box of it, or of segments: axis i is source axis order[i].
 * Pointers are into the table and live as long as it. */
typedef struct sds_candidate {
    int64_t replica_id;
    const char *path;          /* absolute path of the replica file */
    sds_identity identity;     /* of the replica file when the table was written */
    int32_t storage;           /* sds_table_storage, not SDS_TABLE_OTHER */
    int64_t data_offset_bytes; /* contiguous: first byte of the dataset in it */
    uint32_t metadata_crc32c;  /* contiguous: of every byte outside the dataset's bytes */
    sds_chunking chunks;       /* in the axes of the replica */
    int32_t rank;
    const int32_t *order;
    const int64_t
        *region_start; /* the box that it holds, in the axes of the source; of segments: */
    const int64_t *region_extent; /* the one around them */
    sds_tiles tiles;
    sds_file_layout layout;
    sds_cost_model model;    /* time of a read from this replica, filters apart */
    int32_t shadow_permille; /* share of reads to serve; 1000: active */
} sds_candidate;

typedef struct sds_table_dataset {
    const char *path; /* absolute HDF5 path, e.g. "/entry/cube" */
    int32_t rank;
    const int64_t *extent;
    int64_t element_bytes;
    uint32_t type_crc32c;      /* of the file type's text, see above */
    int32_t type_class;        /* H5T_class_t */
    int32_t storage;           /* of the source, sds_table_storage */
    int64_t data_offset_bytes; /* contiguous: its first byte */
    sds_chunking chunks;
    sds_file_layout layout;
    sds_cost_model model; /* time of a read from the original through HDF5, filters apart */
    int32_t n_candidates;
} sds_table_dataset;

typedef struct sds_table sds_table;

/* Name of the table of a canonical source path: 32 hex digits and ".sdst", NUL included in 64. */
void sds_table_name(const char *canonical_path, char out[64]);

/* Read and check a table. SDS_EIO (errno; ENOENT: there is none; ELOOP: a symbolic link),
 * SDS_EFORMAT, SDS_EVERSION, SDS_ENOMEM. Replacing or truncating the file later changes nothing. */
sds_status sds_table_open(const char *path, sds_table **out);
/* The same from bytes, which are copied. */
sds_status sds_table_from_bytes(const void *bytes, size_t n, sds_table **out);
void sds_table_close(sds_table *table);

const char *sds_table_source_path(const sds_table *table);
const sds_identity *sds_table_source_identity(const sds_table *table);
uint64_t sds_table_source_instance(const sds_table *table);
/* Owner and mode of the table file as opened (0, 0 from bytes). */
uint32_t sds_table_owner(const sds_table *table);
uint32_t sds_table_mode(const sds_table *table);
/* Of memory that it takes. */
int64_t sds_table_bytes(const sds_table *table);
int32_t sds_table_n_datasets(const sds_table *table);
/* SDS_ENOENT where i is not the index of one. */
sds_status sds_table_dataset_at(const sds_table *table, int32_t i, sds_table_dataset *out);
/* SDS_ENOENT where the table does not name it. */
sds_status sds_table_find(const sds_table *table, const char *dataset_path, int32_t *index);
sds_status sds_table_candidate_at(const sds_table *table, int32_t dataset, int32_t i,
                                  sds_candidate *out);

/* Building: a table is encoded whole. Strings and arrays are copied. SDS_EINVAL: what a reader
 * would refuse; most of it is noticed by finish. */
typedef struct sds_table_builder sds_table_builder;
sds_status sds_table_builder_new(const char *source_path, const sds_identity *identity,
                                 uint64_t instance, sds_table_builder **out);
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
