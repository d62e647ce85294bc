// Moves what a read selects from chunks into the program's memory: those of a replica, or of the
// program's own dataset.
#pragma once

#include "memory_layout.h"
#include "replica_dataset.h"
#include "transfer.h"

namespace sds::vol
{

// What became of a transfer.
enum class Transferred {
    all,
    no_room,  // other threads are decoding, in all the memory that there is for it
    not_kept, // there is no memory to keep a chunk decoded of which parts are read in turn
    failed,
};

// As transfer(); HDF5 fetches the chunks. type: of the replica's elements.
Transferred transfer_chunked(const ReplicaDataset &replica, hid_t type,
                             const sds_table_dataset &dataset, const sds_candidate &candidate,
                             const sds_hyperslab &slab, const Conversion &conversion,
                             const MemoryLayout &memory, void *buffer);

} // namespace sds::vol
