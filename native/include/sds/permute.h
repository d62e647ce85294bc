/* Cache-blocked permutation of the axes of an array in memory. */
#ifndef SDS_PERMUTE_H
#define SDS_PERMUTE_H

#include <stddef.h>
#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copy src, C-contiguous of the given shape, into dst, C-contiguous, whose axis i is source axis
 * order[i] (numpy.transpose). src and dst do not overlap. SDS_EINVAL: order is no permutation. */
sds_status sds_permute(int32_t rank, const int64_t shape[], const int32_t order[],
                       size_t element_bytes, const void *src, void *dst);

/* The general form, of rank up to 2 * SDS_MAX_RANK: copy an n-dimensional box between two strided
 * arrays. shape, src_stride and dst_stride (bytes, may be negative) name the same axes. Copies in
 * an order that is kind to the cache on both sides. */
sds_status sds_copy_strided(int32_t rank, const int64_t shape[], const int64_t src_stride[],
                            const int64_t dst_stride[], size_t element_bytes, const void *src,
                            void *dst);

#ifdef __cplusplus
}
#endif
#endif
