// The replicas that a table offers for a dataset: what each holds, and where.
#pragma once

#include "sds/geometry.h"
#include "sds/table_format.h"

namespace sds::vol
{

// True where all that is selected of the source lies in the box that the candidate holds.
bool holds(const sds_candidate &candidate, const sds_hyperslab &slab);
// True where it holds less than the source.
bool is_partial(const sds_table_dataset &dataset, const sds_candidate &candidate);

// Bytes of a chunk, decoded. Decoding takes two or three times as much of the program's memory:
// replicas in larger chunks are left alone. `sds reorganize` makes none.
constexpr int64_t max_chunk_bytes = 1 << 20;
int64_t chunk_bytes_of(const sds_table_dataset &dataset, const sds_candidate &candidate);
// True of a candidate in such chunks.
bool has_large_chunks(const sds_table_dataset &dataset, const sds_candidate &candidate);

// A selection of the source that the candidate holds, in the replica's own axes.
bool slab_in_replica(const sds_candidate &candidate, const sds_hyperslab &slab, sds_hyperslab &out);

// The array that the candidate stores: the box's axes in its order.
sds_array array_of(const sds_table_dataset &dataset, const sds_candidate &candidate);
// True where it has elements selected by so many indices per replica axis in the source's order.
bool keeps_order(const sds_candidate &candidate, const int64_t shape[]);
// Bytes of all of its elements.
int64_t bytes_of(const sds_table_dataset &dataset, const sds_candidate &candidate);

} // namespace sds::vol
