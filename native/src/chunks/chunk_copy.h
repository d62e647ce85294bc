/* The part of a selection that lies in one chunk. Internal. */
#ifndef SDS_SRC_CHUNK_COPY_H
#define SDS_SRC_CHUNK_COPY_H

#include "sds/chunked_read.h"
#include "sds/read_types.h"

/* A read, seen from its chunks. Strides are of the result, bytes. */
typedef struct sds__chunk_selection {
    const sds_chunked_dataset *dataset;
    const sds_axis_spans *axis;     /* NULL: points */
    const sds_chunk_points *points; /* NULL: axis */
    const sds_chunk_list *chunks;
    int64_t chunk_stride[SDS_MAX_RANK]; /* bytes from index to index within a chunk */
    int64_t out_stride[SDS_MAX_RANK];
    int64_t chunk_bytes;
    int64_t out_bytes;
} sds__chunk_selection;

/* Of the arguments of sds_read_chunks, whose selection and indices it checks.
 * SDS_EINVAL, or SDS_EOVERFLOW where sizes do not fit 63 bits. */
sds_status sds__chunk_selection_init(sds__chunk_selection *self, const sds_chunked_dataset *dataset,
                                     const sds_axis_spans axis[], const sds_chunk_points *points,
                                     const sds_chunk_list *chunks);

/* Copy what is selected from the elements of the i-th chunk to its places. */
void sds__chunk_copy(const sds__chunk_selection *self, size_t i, const uint8_t *chunk,
                     uint8_t *out);

/* Where what is selected of the i-th chunk lies in the file, that is stored without filters: at
 * most max pieces. Returns their number, which may be more than max: nothing is then written. */
size_t sds__chunk_pieces(const sds__chunk_selection *self, size_t i, size_t max,
                         sds_piece pieces[]);

/* Bytes of a chunk that are selected, and of the longest run of them that is contiguous both in
 * the chunk and in the result; 0 where points are selected. */
typedef struct sds__chunk_share {
    int64_t bytes;
    int64_t run_bytes;
    int64_t position; /* of the first one in the result */
} sds__chunk_share;

sds__chunk_share sds__chunk_selected(const sds__chunk_selection *self, size_t i);

#endif
