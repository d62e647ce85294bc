// Replicas stored in chunks: opened by the program's own HDF5, which has the filters.
//
// What is open has no identifier, so that a program which counts or closes all identifiers of its
// library (H5Fget_obj_count, H5close) meets nothing that it did not open.
#pragma once

#include "chunk_filters.h"
#include "host.h"
#include "sds/table_format.h"

namespace sds::vol
{

struct ReplicaDataset {
    const Host *host; // nullptr: not open
    void *object;     // the native connector's dataset; it keeps its file open
    int *fd;          // HDF5's descriptor of that file
    uint64_t inode;   // of that file
    uint64_t opening; // its number among those of the process, from 1
    ChunkFilters filters;
    bool is_original; // no replica: the program's own dataset, whose chunks HDF5 keeps
    int n_threads;    // that decode its chunks
    // Codecs of plugins that have made of a chunk of its file what HDF5 makes of it, as in
    // ChunkFilters; nullptr for a replica.
    uint32_t *compared;
};

// Open the dataset of a candidate that is a regular file, owned and writable as it should be, and
// of the table's identity. Returns why it must not be used; nullptr where it may.
const char *open_replica_dataset(const Host &host, const sds_table_dataset &dataset,
                                 const sds_candidate &candidate, ReplicaDataset &out);
// Nothing where it is not open.
void close_replica_dataset(ReplicaDataset &replica);

// True while the file that HDF5 reads is the one that the table names.
bool is_unchanged(const ReplicaDataset &replica, const sds_identity &identity);

} // namespace sds::vol
