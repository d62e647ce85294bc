// A connector that takes the axes of what it read from a replica in the opposite order.
#include "sds/permute.h"

extern "C" sds_status crippled_copy_strided(int32_t rank, const int64_t shape[],
                                            const int64_t[] /*src_stride*/,
                                            const int64_t dst_stride[], size_t element_bytes,
                                            const void *src, void *dst)
{
    int64_t stride[64];
    int64_t n_bytes = static_cast<int64_t>(element_bytes);
    for (int32_t axis = 0; axis < rank; axis++) {
        stride[axis] = n_bytes;
        n_bytes *= shape[axis];
    }
    return sds_copy_strided(rank, shape, stride, dst_stride, element_bytes, src, dst);
}
