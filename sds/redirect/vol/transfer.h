// Moves what a read selects from a replica into the program's memory.
#pragma once

#include "memory_layout.h"
#include "sds/table_format.h"

namespace sds::vol
{

// How elements change on the way; none where both types are equal.
struct Conversion {
    hid_t from; // 0: none
    hid_t to;
    hid_t dxpl; // carries the program's conversion callbacks
    int64_t from_bytes;
    int64_t to_bytes;
};

// Read slab (in the source's axes) of the candidate, open as fd, into buffer. False on any error;
// the buffer then holds anything.
bool transfer(const Host &host, int fd, const sds_table_dataset &dataset,
              const sds_candidate &candidate, const sds_hyperslab &slab,
              const Conversion &conversion, const MemoryLayout &memory, void *buffer);

} // namespace sds::vol
