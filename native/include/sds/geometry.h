/* Where the elements of a selection lie in a file, and what reading them touches.
 *
 * A hyperslab of an array stored contiguously is a nested arithmetic progression of equal runs.
 * It stays in that form (sds_runs) from the selection to the features: nothing here walks the
 * elements, and nothing walks the runs where the strides are multiples of the block.
 *
 * Words and mapping: SEMANTICS (docs/reference/semantics.md). Liu 2014, Sec. IV.
 */
#ifndef SDS_GEOMETRY_H
#define SDS_GEOMETRY_H

#include <stddef.h>
#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SDS_MAX_RANK 32

/* An array stored contiguously in C order; axes in *stored* order. */
typedef struct sds_array {
    int32_t rank;                 /* 0 (scalar) to SDS_MAX_RANK */
    int64_t extent[SDS_MAX_RANK]; /* elements per axis, >= 0 */
    int64_t element_bytes;        /* > 0 */
    int64_t offset_bytes;         /* file offset of element 0 */
} sds_array;

/* A regular selection as HDF5 defines it; stride >= block where count > 1. */
typedef struct sds_hyperslab {
    int32_t rank;
    int64_t start[SDS_MAX_RANK];
    int64_t stride[SDS_MAX_RANK];
    int64_t count[SDS_MAX_RANK];
    int64_t block[SDS_MAX_RANK];
} sds_hyperslab;

typedef struct sds_level {
    int64_t count;        /* >= 2 */
    int64_t stride_bytes; /* >= span of everything inside it */
} sds_level;

/* A selection as equal pieces of contiguous bytes, sorted and disjoint:
 * piece (i_0 .. i_{n-1}) starts at first_offset + sum(i_k * level[k].stride_bytes).
 *
 * A run is a maximal contiguous byte range. Nearly always pieces are runs; but the last piece of a
 * row may end where the next row's first begins (every other column of nine), and where a level's
 * stride equals the span inside it, those two pieces are one run. */
typedef struct sds_runs {
    int64_t first_offset;
    int64_t run_bytes; /* of one piece; 0: nothing is selected */
    int32_t n_levels;  /* outermost first */
    sds_level level[2 * SDS_MAX_RANK];
} sds_runs;

/* A contiguous byte range of a file. */
typedef struct sds_extent {
    int64_t offset;
    int64_t length;
} sds_extent;

/* Lustre striping of one file. Without striping: stripe_count 1. */
typedef struct sds_striping {
    int64_t stripe_bytes;
    int64_t stripe_count;
} sds_striping;

/* RAID below one OST. min_request_bytes: the smallest range of an object that is read. */
typedef struct sds_raid {
    int64_t unit_bytes;
    int64_t data_disks;
    int64_t min_request_bytes;
} sds_raid;

/* low == high where exact. */
typedef struct sds_bounds {
    int64_t low;
    int64_t high;
} sds_bounds;

/* HDF5's default buffer for short runs of contiguous data: its sieve buffer. */
#define SDS_SIEVE_BYTES 65536

/* What HDF5 reads through a sieve buffer of SDS_SIEVE_BYTES for the same selection: requests
 * to the file, those of them that do not go on where the one before ended, and their bytes. Chunks
 * are read one by one, whatever their size. */
typedef struct sds_sieve {
    int64_t requests; /* 0: not counted, or nothing is selected */
    int64_t jumps;
    int64_t bytes;
} sds_sieve;

typedef struct sds_features {
    int64_t runs;
    int64_t bytes_useful;
    sds_bounds block_depth;
    sds_bounds block_gap_count;
    sds_bounds block_gap_distance;
    sds_bounds bytes_touched;
    sds_bounds osts_touched;
    sds_bounds disks_touched;
    sds_sieve sieve; /* close, not exact, where the budget ended first */
    int32_t exact;   /* 1: every low == high */
} sds_features;

/* Check the slab against the array and reduce it to runs.
 * SDS_EINVAL: rank, stride or block out of range. SDS_EBOUNDS: reaches outside. SDS_EOVERFLOW. */
sds_status sds_runs_of(const sds_array *array, const sds_hyperslab *slab, sds_runs *out);

/* Number of runs (maximal ranges); 0 where nothing is selected. */
int64_t sds_runs_count(const sds_runs *runs);

/* Number of equal pieces: the product of the levels' counts. */
int64_t sds_runs_pieces(const sds_runs *runs);

/* Bytes selected: pieces * run_bytes. */
int64_t sds_runs_bytes(const sds_runs *runs);

/* Bytes from the first of the first piece to the last of the last; 0 where nothing is selected. */
int64_t sds_runs_span(const sds_runs *runs);

/* Walks the runs in file order; a run of touching pieces comes as one. */
typedef struct sds_run_cursor {
    const sds_runs *runs;
    int64_t index[2 * SDS_MAX_RANK];
    int64_t offset;
    int32_t done;
} sds_run_cursor;

void sds_run_cursor_init(sds_run_cursor *cursor, const sds_runs *runs);

/* Return 1 and the next run, or 0 at the end. */
int sds_run_cursor_next(sds_run_cursor *cursor, sds_extent *out);

/* Elements per axis that the slab selects (count * block). */
void sds_hyperslab_shape(const sds_hyperslab *slab, int64_t shape[]);

/* The slab of the replica whose axis i is source axis order[i]. */
sds_status sds_hyperslab_permute(const sds_hyperslab *slab, const int32_t order[],
                                 sds_hyperslab *out);

/* Liu's shortcut for the block gap, in elements, on the stored axis order. */
sds_status sds_block_gap_paper(const sds_array *array, const sds_hyperslab *slab, int64_t *out);

/* Every feature of one read.
 * budget_ns: time after which bounds are returned instead of exact values; <= 0: none.
 * SDS_EINVAL where a size is not within 1 to 2^50 or a number not positive; SDS_ELIMIT where more
 * than 2^18 disks can be touched; SDS_EOVERFLOW; SDS_ENOMEM. */
sds_status sds_features_of_runs(const sds_runs *runs, const sds_striping *striping,
                                const sds_raid *raid, int64_t budget_ns, sds_features *out);

/* The same within a number of steps instead of a time: the same features each time. A step takes
 * some 20 ns. */
sds_status sds_features_in_steps(const sds_runs *runs, const sds_striping *striping,
                                 const sds_raid *raid, int64_t most_steps, sds_features *out);

/* The same for n extents, sorted by offset, disjoint and not empty (chunks, point lists); else
 * SDS_EINVAL. */
sds_status sds_features_of_extents(size_t n, const sds_extent extents[],
                                   const sds_striping *striping, const sds_raid *raid,
                                   int64_t budget_ns, sds_features *out);

#ifdef __cplusplus
}
#endif
#endif
