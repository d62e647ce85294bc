// Moves what a read selects from a replica stored in chunks into the program's memory.
#pragma once

#include "memory_layout.h"
#include "replica_dataset.h"
#include "transfer.h"

namespace sds::vol
{

// As transfer(), by the program's HDF5. type: of the replica's elements.
bool transfer_chunked(const ReplicaDataset &replica, hid_t type, const sds_table_dataset &dataset,
                      const sds_candidate &candidate, const sds_hyperslab &slab,
                      const Conversion &conversion, const MemoryLayout &memory, void *buffer);

} // namespace sds::vol
