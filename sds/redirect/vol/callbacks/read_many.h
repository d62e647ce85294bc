// H5Dread_multi: one call that reads several datasets.
#pragma once

#include "hdf5_abi.h"

namespace sds::vol
{

// Arguments of the call: arrays of n, and the properties of all.
struct ManyReads {
    size_t n;
    void **datasets;
    hid_t *memory_types;
    hid_t *memory_spaces;
    hid_t *file_spaces;
    hid_t dxpl;
    void **buffers;
};

// Serve what replicas serve, and read all the rest with one call. Where that fails, the call has
// failed; buffers hold anything then, as they do after HDF5 itself. Where they are
// traced, each is with the time of all.
herr_t read_many(const ManyReads &reads, bool traced);

} // namespace sds::vol
