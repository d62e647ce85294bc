/* The spool file: how one process read its datasets. Written by the connector, read by ingest.
 *
 * Append-only blocks, each with length and CRC-32C, so that a torn tail is recognised and skipped.
 * Consecutive reads of the same shape whose start advances by a constant are one record; nested
 * loops of them are one record too: a trace grows with patterns, not with reads.
 *
 * Name: <host>-<pid>-<start, ns>.sdst-spool in the spool directory, mode 0600; created when the
 * first records are written. A forked child writes its own file.
 *
 * Bytes. Little-endian. A file is blocks, one behind the other:
 *     0  char[4]  "SDSB"
 *     4  u16      version, 1. A greater one in the first block: the reader refuses the file.
 *     6  u16      type
 *     8  u32      length of the payload, bytes, at most 2^20
 *    12  u32      CRC-32C of bytes 0 to 11 and of the payload
 *    16  payload
 * A file ends at 2^28 bytes. Blocks of a type that the reader does not know are passed over. Where
 * a block is damaged the reader goes on at the next whole one and counts the bytes between; where
 * there is none, or 1000 places in the file looked like one and were not, the rest is a torn tail
 * (or is being written at this moment: an incremental reader sees it next time).
 *
 * In payloads: varint is seven bits a byte, least significant first, top bit set on all but the
 * last byte; zz is a varint of 0, -1, 1, -2, ... as 0, 1, 2, 3, ...; string is a varint length and
 * that many bytes, none of them NUL. Differences wrap at 64 bits.
 *
 * Type 1, process; the first block: zz pid, zz rank, zz n_ranks, zz start_ns, string host, string
 *     executable, string job_id, string user.
 * Type 2, dataset; before the first record of it: varint id (1 and up), string file, string path,
 *     varint inode, zz size_bytes, zz mtime_ns, zz ctime_ns, u8 rank, per axis (zz extent, zz
 *     chunk), zz element_bytes, zz type_class, zz storage, zz n_filters, zz data_offset_bytes,
 *     string hdf5_version.
 * Type 3, records, until the payload ends. Each is coded as the difference from the one before in
 *     the same block, the first from zeros:
 *     u8      flags: bits 0-3 sds_selection_kind; bit 4 collective; bit 5 served by a replica;
 *             bit 6 shape as before; bit 7 dataset and thread as before
 *     u8      n_loops, 0 to 4
 *     unless bit 7: varint dataset id, varint thread
 *     if bit 5:     zz served_by, a replica's id above 0; -1: the original, read by SDS's engine;
 *                   plus 2^32 times the id of a replica in shadow that left the read alone
 *     unless bit 6: u8 rank, per axis (zz stride, zz count, zz block), zz n_elements
 *     per axis      zz start - start of the record before (an axis that it did not have: 0)
 *     per loop, outermost first: varint repeat (2 and up), per axis zz advance
 *     zz      start_ns - start_ns of the record before
 *     varint  elapsed, sum over the record's reads, ns
 *     if it stands for more than one read (at most 2^32 - 1): zz last_start_ns - start_ns, varint
 *             least elapsed, varint greatest - least elapsed, then the latency histogram: varint
 *             number of buckets that are not empty, for each u8 bucket (ascending), varint count
 * Type 4, reads left out so far because of the cap or a full disk, or because their dataset could
 *     not be described: varint; the last one counts.
 */
#ifndef SDS_TRACE_FORMAT_H
#define SDS_TRACE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"
#include "sds/identity.h"
#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SDS_TRACE_VERSION 1
#define SDS_TRACE_SUFFIX ".sdst-spool"
#define SDS_TRACE_MAX_FILE_BYTES (INT64_C(256) << 20) /* a longer file is no spool file */
#define SDS_TRACE_MAX_DATASETS (1 << 24)              /* ids in a file */
#define SDS_TRACE_LATENCY_BUCKETS 40 /* bucket b counts reads of [2^b, 2^(b+1)) ns */
#define SDS_TRACE_MAX_LOOPS 4        /* nested repetitions folded into one record */

/* The original, read by SDS's engine past HDF5. Told apart, since its times are not HDF5's. */
#define SDS_SERVED_BY_ENGINE (-1)

/* As recorded: served_by and, where a replica in shadow left the read alone, its id; both are below
 * 2^31. */
static inline int64_t sds_trace_served_by(int64_t served_by, int64_t left_by)
{
    return served_by + left_by * (INT64_C(1) << 32);
}

/* Once per file. */
typedef struct sds_trace_process {
    int64_t pid;
    int32_t rank;     /* MPI rank from the launcher's environment; -1: none */
    int32_t n_ranks;  /* 1 where there is no launcher */
    int64_t start_ns; /* CLOCK_REALTIME */
    const char *host;
    const char *executable; /* NULL for a writer: this program, looked up when it first writes */
    const char *job_id;     /* "" outside a batch job */
    const char *user;
} sds_trace_process;

typedef enum sds_storage_kind {
    SDS_STORAGE_COMPACT = 0,
    SDS_STORAGE_CONTIGUOUS = 1,
    SDS_STORAGE_CHUNKED = 2,
    SDS_STORAGE_VIRTUAL = 3,
    SDS_STORAGE_EXTERNAL = 4,
    SDS_STORAGE_UNKNOWN = 15
} sds_storage_kind;

/* Once per dataset and process, or some times where there are very many. */
typedef struct sds_trace_dataset {
    const char *file;      /* canonical path */
    const char *path;      /* HDF5 path; "" where it is not known */
    sds_identity identity; /* of the file at its open */
    int32_t rank;
    int64_t extent[SDS_MAX_RANK];
    int64_t chunk[SDS_MAX_RANK]; /* zeros unless chunked */
    int64_t element_bytes;
    int32_t type_class; /* H5T_class_t */
    int32_t storage;    /* sds_storage_kind */
    int32_t n_filters;
    int64_t data_offset_bytes; /* -1 unless contiguous */
    char hdf5_version[16];     /* of the library that reads, e.g. "2.0.0" */
} sds_trace_dataset;

typedef enum sds_selection_kind {
    SDS_SELECT_NONE = 0,
    SDS_SELECT_ALL = 1,
    SDS_SELECT_HYPERSLAB = 2, /* regular: exact */
    SDS_SELECT_IRREGULAR = 3, /* start and count hold the bounding box */
    SDS_SELECT_POINTS = 4     /* as irregular */
} sds_selection_kind;

/* One read, as the connector hands it over. */
typedef struct sds_trace_read {
    uint32_t dataset; /* id from sds_trace_add_dataset */
    int32_t kind;     /* sds_selection_kind */
    sds_hyperslab slab;
    int64_t n_elements;
    int64_t start_ns; /* CLOCK_REALTIME */
    int64_t elapsed_ns;
    int64_t served_by;  /* as sds_trace_served_by: 0: the original, and not left alone */
    int32_t collective; /* 1: a collective MPI transfer */
} sds_trace_read;

typedef struct sds_trace_options {
    const char *spool_dir;
    int64_t max_file_bytes;    /* cap per process, SDS_TRACE_MAX_FILE_BYTES at most; past it reads
                                  are counted, not recorded; 0: 64 MiB */
    int64_t flush_interval_ns; /* at most this much before the last read is lost at kill -9;
                                  0: 5 s */
    uint32_t max_datasets;     /* ids given; reads of further datasets are counted, not recorded;
                                  0: SDS_TRACE_MAX_DATASETS */
    /* Asked before memory is used for shapes beyond the first 64, and told when it no longer is.
     * Who returns 0 has reads of further shapes written one by one. NULL: no bound but its own,
     * of 3 MiB. */
    int (*take_memory)(size_t n_bytes);
    void (*give_memory)(size_t n_bytes);
} sds_trace_options;

/* Writer: safe to call from any thread; no call fails visibly, and none blocks on another
 * process. A spool that cannot be written means no trace. */
typedef struct sds_trace_writer sds_trace_writer;
sds_trace_writer *sds_trace_writer_new(const sds_trace_options *options,
                                       const sds_trace_process *process);
/* Return the dataset's id. The same description gives the same id, unless very many others were
 * added meanwhile: a file may describe a dataset under several ids. 0: could not be added; reads of
 * id 0 are counted as left out. */
uint32_t sds_trace_add_dataset(sds_trace_writer *writer, const sds_trace_dataset *dataset);
/* This and the next two return 0 where the id was given to a process that this one was forked from:
 * the dataset is to be added again, and the read with the id that it then gets. */
int sds_trace_add_read(sds_trace_writer *writer, const sds_trace_read *read);
/* When a read began and ended: CLOCK_MONOTONIC, which the writer turns into the date. */
typedef struct sds_trace_span {
    int64_t begin_ns;
    int64_t end_ns;
} sds_trace_span;
/* The same for a read timed by that clock. */
typedef struct sds_trace_timed_read {
    uint32_t dataset;
    int32_t kind;
    const sds_hyperslab *slab;
    int64_t n_elements;
    int64_t served_by;
    int32_t collective;
    sds_trace_span span;
} sds_trace_timed_read;
int sds_trace_add_timed_read(sds_trace_writer *writer, const sds_trace_timed_read *read);
/* The same for all of a dataset, or a box without gaps in it, of few axes: what most reads are.
 * Boxes are put aside, some at a time, and folded together: between two small reads of a program
 * hardly any of its code and data stays in the processor's nearest caches, and fetching them again
 * costs more than what they do. */
#define SDS_TRACE_BOX_RANK 4 /* at most */
typedef struct sds_trace_box {
    uint32_t dataset;
    int8_t rank;
    int8_t kind; /* SDS_SELECT_ALL or SDS_SELECT_HYPERSLAB */
    int8_t collective;
    sds_trace_span span;
    int64_t served_by;
    const int64_t *first; /* indices on each axis of its first element, */
    const int64_t *last;  /* and of its last */
} sds_trace_box;
int sds_trace_add_box(sds_trace_writer *writer, const sds_trace_box *box);
void sds_trace_flush(sds_trace_writer *writer);
/* Where the file is, or will be once there is something to write. */
const char *sds_trace_writer_path(const sds_trace_writer *writer);
/* Flush, close and free; no other call may be under way or follow. NULL is accepted here and
 * above. */
void sds_trace_writer_close(sds_trace_writer *writer);
/* In the child after fork: drop what the parent had buffered; a new file begins at the next read.
 * Never waits for a lock that a thread of the parent held. Linux tells the writer of a fork by
 * itself (MADV_WIPEONFORK); calling this, from a pthread_atfork handler, is for older kernels. */
void sds_trace_after_fork(sds_trace_writer *writer, int64_t pid);

/* A run-length record as stored: reads whose start is
 * slab.start + sum over loops l of i_l * advance[l], i_l < repeat[l], last loop fastest. */
typedef struct sds_trace_record {
    sds_trace_read first; /* dataset, kind, slab, n_elements (each), start of the first;
                             its elapsed_ns only where n_reads is 1 */
    int32_t n_loops;
    int64_t repeat[SDS_TRACE_MAX_LOOPS];
    int64_t advance[SDS_TRACE_MAX_LOOPS][SDS_MAX_RANK];
    int64_t n_reads; /* product of repeat, 1 without loops */
    int64_t last_start_ns;
    int64_t elapsed_sum_ns;
    int64_t elapsed_min_ns;
    int64_t elapsed_max_ns;
    uint32_t latency[SDS_TRACE_LATENCY_BUCKETS];
    uint32_t thread; /* ordinal of the thread in its process */
} sds_trace_record;

/* Reader. Walks what is whole; what is torn or damaged is passed over and reported. */
typedef struct sds_trace_reader sds_trace_reader;
typedef enum sds_trace_item {
    SDS_TRACE_END = 0,
    SDS_TRACE_DATASET = 1,
    SDS_TRACE_RECORD = 2
} sds_trace_item;
/* SDS_EFORMAT: not a spool file; SDS_EVERSION; SDS_EIO. start_offset: 0, or where an earlier
 * reader stopped (sds_trace_reader_offset) so that a growing file is read piece by piece. */
sds_status sds_trace_reader_open(const char *path, int64_t start_offset, sds_trace_reader **out);
const sds_trace_process *sds_trace_reader_process(const sds_trace_reader *reader);
/* The item's kind; dataset ids are given in *id. Pointers live until the next call. Datasets are
 * delivered from the beginning of the file, records from start_offset on. */
sds_trace_item sds_trace_reader_next(sds_trace_reader *reader, uint32_t *id,
                                     sds_trace_dataset *dataset, sds_trace_record *record);
/* 1 where the present block is read to its end, so that a reader may stop here and another go on
 * from sds_trace_reader_offset. */
int sds_trace_reader_is_between_blocks(const sds_trace_reader *reader);
/* Between blocks and after SDS_TRACE_END: bytes up to the end of the last whole block. */
int64_t sds_trace_reader_offset(const sds_trace_reader *reader);
/* Bytes behind that which are torn or damaged; 0 for a clean end. */
int64_t sds_trace_reader_torn_bytes(const sds_trace_reader *reader);
/* Bytes from start_offset on that were damaged, with whole blocks behind them. */
int64_t sds_trace_reader_skipped_bytes(const sds_trace_reader *reader);
/* Reads left out so far, from the beginning of the file. */
int64_t sds_trace_reader_dropped_reads(const sds_trace_reader *reader);
void sds_trace_reader_close(sds_trace_reader *reader);

#ifdef __cplusplus
}
#endif
#endif
