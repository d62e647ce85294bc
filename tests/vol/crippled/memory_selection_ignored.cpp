// A connector that fills the program's buffer from its beginning, whatever part of it was selected.
#include "memory_layout.h"

namespace sds::vol
{

bool memory_layout_of(const Host &, hid_t, const int64_t[], const Selection &selection,
                      int64_t element_bytes, MemoryLayout &out)
{
    int64_t shape[SDS_MAX_RANK];
    sds_hyperslab_shape(&selection.slab, shape);
    out = {0, {}, true};
    int64_t n_bytes = element_bytes;
    for (int32_t axis = selection.slab.rank - 1; axis >= 0; axis--) {
        out.stride_bytes[axis] = n_bytes;
        n_bytes *= shape[axis];
    }
    return true;
}

} // namespace sds::vol
