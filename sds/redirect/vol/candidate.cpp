#include "candidate.h"

namespace sds::vol
{

bool holds(const sds_candidate &candidate, const sds_hyperslab &slab)
{
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        const int64_t begin = candidate.region_start[axis];
        const int64_t last =
            slab.start[axis] + (slab.count[axis] - 1) * slab.stride[axis] + slab.block[axis] - 1;
        if (slab.start[axis] < begin || last >= begin + candidate.region_extent[axis]) return false;
    }
    return true;
}

bool is_partial(const sds_table_dataset &dataset, const sds_candidate &candidate)
{
    for (int32_t axis = 0; axis < dataset.rank; axis++)
        if (candidate.region_extent[axis] != dataset.extent[axis]) return true;
    return false;
}

int64_t chunk_bytes_of(const sds_table_dataset &dataset, const sds_candidate &candidate)
{
    int64_t n_bytes = dataset.element_bytes;
    for (int32_t axis = 0; axis < candidate.rank; axis++)
        if (__builtin_mul_overflow(n_bytes, candidate.chunks.shape[axis], &n_bytes))
            return INT64_MAX;
    return n_bytes;
}

bool has_large_chunks(const sds_table_dataset &dataset, const sds_candidate &candidate)
{
    return candidate.storage == SDS_TABLE_CHUNKED &&
           chunk_bytes_of(dataset, candidate) > max_chunk_bytes;
}

bool slab_in_replica(const sds_candidate &candidate, const sds_hyperslab &slab, sds_hyperslab &out)
{
    sds_hyperslab within = slab;
    for (int32_t axis = 0; axis < slab.rank; axis++)
        within.start[axis] -= candidate.region_start[axis];
    return sds_hyperslab_permute(&within, candidate.order, &out) == SDS_OK;
}

sds_array array_of(const sds_table_dataset &dataset, const sds_candidate &candidate)
{
    sds_array array = {};
    array.rank = dataset.rank;
    for (int32_t axis = 0; axis < dataset.rank; axis++)
        array.extent[axis] = candidate.region_extent[candidate.order[axis]];
    array.element_bytes = dataset.element_bytes;
    array.offset_bytes = candidate.data_offset_bytes;
    return array;
}

bool keeps_order(const sds_candidate &candidate, const int64_t shape[])
{
    int32_t last = -1;
    for (int32_t axis = 0; axis < candidate.rank; axis++) {
        if (shape[axis] == 1) continue;
        if (candidate.order[axis] < last) return false;
        last = candidate.order[axis];
    }
    return true;
}

int64_t bytes_of(const sds_table_dataset &dataset, const sds_candidate &candidate)
{
    int64_t n_bytes = dataset.element_bytes;
    for (int32_t axis = 0; axis < dataset.rank; axis++)
        n_bytes *= candidate.region_extent[axis];
    return n_bytes;
}

} // namespace sds::vol
