/* What a read costs in each layout of its dataset, and which of them serves it.
 *
 * One answer for the connector, sds.read, advice and explain. A dataset is read from the original
 * through HDF5, from the original by the read engine, or from a replica that holds the selection.
 * Each costs one time from the device and another from memory. What is in memory, and what no model
 * was fitted to, takes as long as its requests (sds/io_model.h): those of the engine's plan, or of
 * HDF5's buffer. Chunks, and what is on a device that was measured, take what the cost model of the
 * layout says. Which of the two times holds is probed, but only where the answer hangs on it.
 *
 * A replica serves where the models of the table predict it to be faster than the original, and, of
 * an original that the engine may read, where it is no slower than that from memory. A replica in
 * chunks or of segments is not probed: it is taken to be in memory where the original is, and to
 * gain as much by it. The coefficients of a table's models hold the margin by which it has to be
 * faster.
 */
#ifndef SDS_CHOOSE_H
#define SDS_CHOOSE_H

#include <stdint.h>

#include "sds/candidate.h"
#include "sds/geometry.h"
#include "sds/io_model.h"
#include "sds/read_plan.h"
#include "sds/status.h"
#include "sds/table_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A choice: the index of a candidate, or how the original is read. */
#define SDS_BY_HDF5 (-1)
#define SDS_BY_ENGINE (-2)
#define SDS_BY_ENGINE_IF_CACHED (-3) /* else by HDF5 */

/* Where the elements of a contiguous replica begin: so far behind a page, as the kernel copies more
 * slowly to memory that lies a multiple of 32 bytes further in its page than what is copied. */
#define SDS_REPLICA_SHIFT_BYTES 2056
/* Those of a replica of fewer bytes begin on a page: to copy them is short in any case. */
#define SDS_REPLICA_LEAST_SHIFTED_BYTES 65536

/* Where the elements of a contiguous replica of so many bytes begin that is not built yet: behind a
 * page of metadata. One that has more metadata begins later. */
static inline int64_t sds_replica_data_offset(int64_t size_bytes)
{
    return 4096 + (size_bytes < SDS_REPLICA_LEAST_SHIFTED_BYTES ? 0 : SDS_REPLICA_SHIFT_BYTES);
}

/* What one more chunk costs HDF5 besides its bytes: it is looked up, read and copied by itself.
 * Measured with HDF5 1.14 on chunks of 2 to 16 KiB in the page cache: 5 to 12 us each. */
#define SDS_HDF5_CHUNK_S 10e-6

/* Of elements. Decoding a chunk takes two or three times as much memory: replicas in larger chunks
 * are neither built nor read. */
#define SDS_MAX_CHUNK_BYTES (INT64_C(1) << 20)

/* Candidates of one dataset that are considered: the first ones. */
#define SDS_MAX_CANDIDATES 64

/* A dataset and its replicas. */
typedef struct sds_layouts {
    sds_table_dataset dataset;
    const sds_table *table;          /* that holds the candidates, as those of dataset `index` */
    int32_t index;                   /* in the table */
    const sds_candidate *candidates; /* where there is no table */
    /* Of the original read by the engine. NULL: that of the first contiguous candidate with a
     * calibrated model. What is not calibrated counts as none. */
    const sds_cost_model *engine_model;
} sds_layouts;

/* What is known of the process that reads, and of the file. Zeroes: one process, built-in costs, no
 * probing; HDF5 reads the original. Callbacks are called where the answer needs them alone. */
typedef struct sds_choose_given {
    const sds_io_parameters *parameters; /* NULL: built in */
    int64_t sieve_bytes;                 /* of HDF5's buffer; 0: its default */
    double n_processes;                  /* that read at one time; 0: one */
    int32_t engine_reads_original;       /* the engine may read the original */
    int32_t engine_always;               /* and does, whatever is predicted */
    int32_t active_only;                 /* leave out candidates that serve a share of the reads */
    uint32_t *n_judged; /* reads of the file that were judged, counted here; NULL: not the first */
    /* What the engine's plans are made of. NULL: a mapping and a queue are possible. */
    void (*plan_given)(void *context, sds_plan_given *out);
    /* Where the bytes of a read lie that the original (SDS_BY_ENGINE) or a candidate would serve.
     * Called at most once for each, only where it can change the answer, and only where the engine
     * may read the original; not for candidates in chunks or tiles. UNKNOWN counts as COLD, and
     * where it is of the original, nothing more is probed. NULL: COLD. */
    sds_cache (*probe)(void *context, int32_t choice);
    void *context;
} sds_choose_given;

/* By its plan the engine reads a replica only where that is faster by this factor. */
#define SDS_PLAN_MARGIN 1.25

/* Seconds of one read in one layout. */
typedef struct sds_read_cost {
    double model_s;     /* cold; negative: it is not held, or cannot be predicted */
    int32_t is_planned; /* that is by requests; of a candidate, with SDS_PLAN_MARGIN */
    double more_s;      /* besides: decoding, HDF5's time per chunk, permuting in memory */
    double warm_s;      /* in memory; as cold where nothing is probed. Of a candidate with the
                           margin, where it is less than cold */
    int32_t is_probed;  /* a probe can tell whether it is in memory */
} sds_read_cost;

/* What an answer may change with from one read of a shape to the next. */
#define SDS_ON_MAPPING 1 /* that the file was not mapped yet */
#define SDS_ON_CACHE 2   /* what is in memory */
#define SDS_ON_FINDING 4 /* it was found there, and the choice would else be another */

/* Of one read: the two ways to read the original, and each candidate. */
typedef struct sds_read_costs {
    sds_read_cost by_hdf5;
    sds_read_cost by_engine;  /* model_s negative where only HDF5 reads it */
    int32_t original;         /* how the original is read */
    int32_t hangs_on;         /* SDS_ON_MAPPING and the like: what it is now */
    sds_read_cost *candidate; /* room for dataset.n_candidates; NULL: not wanted */
} sds_read_costs;

static inline double sds_cold_s(const sds_read_cost *cost)
{
    return cost->model_s < 0 ? -1 : cost->model_s + cost->more_s;
}

/* Reads alike that a choice serves before it is made anew. What was found in memory at one place
 * need not be at the next; reads by SDS_BY_ENGINE_IF_CACHED look themselves. */
static inline uint32_t sds_choice_uses(int32_t choice, int32_t hangs_on)
{
    if ((hangs_on & SDS_ON_FINDING) && choice != SDS_BY_ENGINE_IF_CACHED) return 4;
    if (hangs_on & SDS_ON_MAPPING) return 8;
    return hangs_on & SDS_ON_CACHE ? 32 : 64;
}

/* What the original costs cold, as it would be read. */
double sds_original_s(const sds_read_costs *costs);

/* The candidate or way that serves a selection inside the dataset's extent, not empty. What lies in
 * one run of a contiguous original is read from there: no replica reads less. costs may be NULL; of
 * one with room for the candidates all are filled in, also where the answer is plain. */
int32_t sds_choose(const sds_layouts *layouts, const sds_hyperslab *slab,
                   const sds_choose_given *given, sds_read_costs *costs);

/* A selection that is no box: the first runs of it, in HDF5's order, in elements of the source. */
typedef struct sds_listed_read {
    int64_t n_elements; /* of all of it */
    const int64_t *low; /* bounding box, inclusive */
    const int64_t *high;
    size_t n;
    const sds_extent *runs;
    /* List these runs as they lie in the original (SDS_BY_ENGINE) or in a candidate: pieces sorted
     * by offset, bytes of the file, valid until the next call. Returns how many times longer the
     * whole selection is than what is listed; 0 where that layout cannot serve it, or plainly no
     * faster. */
    double (*list)(void *context, int32_t choice, size_t *n, const sds_piece **pieces);
    void *context;
} sds_listed_read;

/* The same for a selection of which a part is listed. hangs_on: as in sds_read_costs. */
int32_t sds_choose_listed(const sds_layouts *layouts, const sds_listed_read *read,
                          const sds_choose_given *given, int32_t *hangs_on);

/* Bytes that HDF5 reads with one request through a buffer of so many: a dataset of no more is not
 * read faster by the engine. */
int64_t sds_window_bytes(int64_t sieve_bytes);

/* Whether a contiguous array of this extent holds all that is selected in one run. */
int sds_is_one_run(const int64_t extent[], const sds_hyperslab *slab);

/* Chunks that a selection touches; -1 where the number is too great. */
int64_t sds_chunks_touched(const int64_t chunk_shape[], const sds_hyperslab *slab);

/* Whether a candidate is in chunks larger than SDS_MAX_CHUNK_BYTES. */
int sds_candidate_has_large_chunks(const sds_candidate *candidate,
                                   const sds_table_dataset *dataset);

/* Candidate i. */
void sds_layouts_candidate(const sds_layouts *layouts, int32_t i, sds_candidate *out);

#ifdef __cplusplus
}
#endif
#endif
