#include "candidate.h"

namespace sds::vol
{

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

sds_array array_of(const sds_table_dataset &dataset, const sds_candidate &candidate)
{
    sds_array array;
    sds_candidate_array(&candidate, &dataset, &array);
    return array;
}

} // namespace sds::vol
