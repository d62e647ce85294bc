// Chunks as they are stored, of a replica or of an original, fetched by the program's HDF5 and
// decoded by the core.
#pragma once

#include "decoding_room.h"
#include "replica_dataset.h"
#include "sds/geometry.h"

namespace sds::vol
{

// What became of a read.
enum class Fetched {
    all,
    not_by_core, // HDF5 is to be asked: a chunk is not there, and has the fill value
    no_room,     // other threads are decoding
    failed,
};

// Read what a slab selects of a replica whose filters the core undoes. To be called in a
// LibraryContext.
// chunk: its shape; out: packed in the order of the replica's axes.
Fetched read_chunks(const ReplicaDataset &replica, const sds_array &array, const int64_t chunk[],
                    const sds_hyperslab &slab, DecodingBuffer &buffer, char *out);

} // namespace sds::vol
