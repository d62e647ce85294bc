/* Reads a selection of a dataset that HDF5 stores in chunks, without HDF5.
 *
 * Of chunks that were filtered, each is read whole and once, in file order, and its filters are
 * undone by several threads while the next ones are read; of chunks that were not, only the bytes
 * selected are read where that is less. */
#ifndef SDS_CHUNKED_READ_H
#define SDS_CHUNKED_READ_H

#include <stddef.h>
#include <stdint.h>

#include "sds/filters.h"
#include "sds/geometry.h"
#include "sds/read_engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Consecutive indices of an axis, and which of the result's they become. */
typedef struct sds_span {
    int64_t first;
    int64_t length;   /* positive */
    int64_t position; /* of the first one */
} sds_span;

/* What is selected on an axis: n spans in ascending order, disjoint. */
typedef struct sds_axis_spans {
    size_t n;
    const sds_span *spans; /* NULL: span i begins at regular.first + i * stride, and follows the
                              one before it in the result */
    sds_span regular;      /* the first one, at position 0 */
    int64_t stride;
    int64_t result_length; /* of the result on this axis */
} sds_axis_spans;

/* The chunks to read, in file order. */
typedef struct sds_chunk_list {
    size_t n;
    const int64_t *index;    /* of chunk i: rank numbers from i * rank on */
    const int64_t *offset;   /* bytes, in the file */
    const int64_t *size;     /* bytes, in the file */
    const uint32_t *skipped; /* bit k: its k-th filter was not applied */
    uint8_t *const *kept;    /* NULL; or where all elements of chunk i are to be left besides */
} sds_chunk_list;

/* Elements selected one by one: those of chunk i are first[i] to first[i + 1] - 1. */
typedef struct sds_chunk_points {
    const int64_t *first;     /* n + 1 numbers, from 0 on, ascending */
    const int64_t *in_chunk;  /* elements, in C order of the whole chunk; ascending */
    const int64_t *in_result; /* elements */
    int64_t n_result;         /* elements of the result */
} sds_chunk_points;

typedef struct sds_chunked_dataset {
    int32_t rank; /* 1 to SDS_MAX_RANK */
    int64_t extent[SDS_MAX_RANK];
    int64_t chunk[SDS_MAX_RANK];
    int64_t element_bytes;
    int32_t n_filters;
    int32_t edges_unfiltered;           /* chunks that reach over the extent were not filtered */
    sds_filter filter[SDS_MAX_FILTERS]; /* in the order in which writing applied them */
} sds_chunked_dataset;

/* Zeroes: the defaults. */
typedef struct sds_chunked_options {
    int32_t n_threads;    /* that undo filters, the caller's among them; 1 */
    int64_t window_bytes; /* of chunks as they are stored, read at a time; 16 MiB, what is not
                           * cached about 2 */
} sds_chunked_options;

typedef struct sds_chunked_report {
    int64_t chunks;       /* that were read whole */
    int64_t requests;     /* that were made */
    int64_t bytes_read;   /* from the file */
    int64_t memory_bytes; /* of all buffers together */
    int32_t threads;
} sds_chunked_report;

/* Read what is selected into out, which holds the result in C order.
 * axis: rank entries; or NULL, and points says what is selected.
 * Chunks that are not in the list leave their part of out untouched.
 * SDS_EFORMAT: a chunk is not what the filters write; SDS_ESHORT: the file ends before it does;
 * SDS_EIO: errno is set; SDS_ENOMEM; SDS_EINVAL; SDS_EOVERFLOW. out may then be partly written.
 * options and report may be NULL. */
sds_status sds_read_chunks(sds_file *file, const sds_chunked_dataset *dataset,
                           const sds_axis_spans axis[], const sds_chunk_points *points,
                           const sds_chunk_list *chunks, const sds_chunked_options *options,
                           void *out, sds_chunked_report *report);

/* Copy what is selected of chunks whose elements are in memory: kept, which is not written. Of the
 * list, neither offset nor size is looked at. */
sds_status sds_copy_chunks(const sds_chunked_dataset *dataset, const sds_axis_spans axis[],
                           const sds_chunk_points *points, const sds_chunk_list *chunks, void *out);

#ifdef __cplusplus
}
#endif
#endif
