// Chunks that HDF5 would keep decoded.
//
// A program may give HDF5 a chunk cache that holds all of a dataset. HDF5 then decodes each chunk
// once, and whatever reads of it follow are copies, which hardly any replica can match. Reads that
// a replica serves leave that cache empty. So it is followed which chunks HDF5 would hold had it
// read all, and measured how long replicas take for reads of such chunks. Where they take longer
// than copies would, the dataset is HDF5's once they have cost a tenth of HDF5's time: it then
// decodes what it would have decoded anyway.
#pragma once

#include "object.h"

struct sds_hyperslab;

namespace sds::vol
{

struct StoredDataset;
struct KeptChunks;

// Begin to follow a dataset; nullptr where it is not in chunks, HDF5's cache does not hold all of
// them, or they are too many to be followed, by themselves or beside what else SDS keeps.
KeptChunks *follow_chunks(const Object &object, const StoredDataset &stored);
void release_chunks(KeptChunks *kept);

// Whether HDF5 reads the dataset from now on.
bool is_left_to_cache(const KeptChunks &kept);

// What HDF5 would have taken for a read, had it made all those before it.
struct NativeRead {
    double seconds;
    bool is_copy; // of chunks that it would hold all
};

// Count a read of a box, for which HDF5 is predicted to take so long where it holds nothing.
NativeRead count_read(KeptChunks &kept, const sds_hyperslab &slab, double predicted_s);
// Count that a replica served it.
void count_served(KeptChunks &kept, const NativeRead &native, double seconds);

} // namespace sds::vol
