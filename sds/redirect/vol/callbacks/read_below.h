// Reads by the connector below.
#pragma once

#include "branch.h"
#include "object.h"

namespace sds::vol
{

// One call on n datasets; under: their objects below.
inline herr_t read_below(const Object &first, size_t n, void *under[], hid_t memory_types[],
                         hid_t memory_spaces[], hid_t file_spaces[], hid_t dxpl, void *buffers[])
{
    const auto direct = first.below->dataset_cls.read;
    return mostly(direct)
               ? direct(n, under, memory_types, memory_spaces, file_spaces, dxpl, buffers, nullptr)
               : first.hdf5().H5VLdataset_read(n, under, first.connector, memory_types,
                                               memory_spaces, file_spaces, dxpl, buffers, nullptr);
}

} // namespace sds::vol
