// The replicas that a table offers for a dataset: what the connector asks of them besides
// sds/candidate.h.
#pragma once

#include "sds/candidate.h"
#include "sds/geometry.h"
#include "sds/table_format.h"

namespace sds::vol
{

// Bytes of a chunk, decoded. Decoding takes two or three times as much of the program's memory:
// replicas in larger chunks are left alone. `sds reorganize` makes none.
constexpr int64_t max_chunk_bytes = 1 << 20;
int64_t chunk_bytes_of(const sds_table_dataset &dataset, const sds_candidate &candidate);
// True of a candidate in such chunks.
bool has_large_chunks(const sds_table_dataset &dataset, const sds_candidate &candidate);

// Of one without tiles.
sds_array array_of(const sds_table_dataset &dataset, const sds_candidate &candidate);

} // namespace sds::vol
