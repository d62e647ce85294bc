/* Reads scattered elements of an array stored contiguously, without HDF5.
 *
 * What the read engine is for a regular selection, this is for a list: points, unions of
 * hyperslabs, in any order and with repetitions.
 */
#ifndef SDS_GATHER_H
#define SDS_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Neighbouring elements of the array, and where they go: neighbours there as well. */
typedef struct sds_segment {
    int64_t offset;    /* of the first in the array, elements */
    uint32_t length;   /* elements, positive */
    uint32_t position; /* of the first in the output, elements */
} sds_segment;

/* Sort by offset; those of equal offset keep their order. scratch: room for as many. n < 2^32. */
void sds_segments_sort(size_t n, sds_segment segments[], sds_segment scratch[]);

/* Read n segments, sorted by offset, of the array whose first element lies at data_offset_bytes.
 * They may overlap in the file, not in the output. Segments whose gaps are small are read together
 * through a bounded buffer; the last bytes of the output lie at the greatest position.
 * SDS_EINVAL: not sorted; SDS_ESHORT: the file ends before the data; SDS_EIO: errno is set;
 * SDS_ENOMEM. */
sds_status sds_read_segments(int fd, int64_t data_offset_bytes, int64_t element_bytes, size_t n,
                             const sds_segment segments[], void *out);

#ifdef __cplusplus
}
#endif
#endif
