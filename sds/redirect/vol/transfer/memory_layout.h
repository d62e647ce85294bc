// Where the elements of a read go in the program's memory.
#pragma once

#include "host.h"
#include "selection.h"

namespace sds::vol
{

// The element with index i (per axis of the file selection's shape) goes to
// offset_bytes + sum(i[k] * stride_bytes[k]).
struct MemoryLayout {
    int64_t offset_bytes;
    int64_t stride_bytes[SDS_MAX_RANK];
    bool is_packed; // in C order without gaps: the buffer can be filled as a whole
};

// False where the memory selection is no strided box: such reads are left to HDF5.
// extent: of the dataset; selection: what is read of it; element_bytes: in memory.
bool memory_layout_of(const Host &host, hid_t memory_space, const int64_t extent[],
                      const Selection &selection, int64_t element_bytes, MemoryLayout &out);

} // namespace sds::vol
