// Moves what a read selects from a replica into the program's memory.
#pragma once

#include "conversion.h"
#include "memory_layout.h"
#include "sds/read_engine.h"
#include "sds/table_format.h"

namespace sds::vol
{

// What the engine's own buffers may take, of a read that the page cache does not hold too.
constexpr int64_t max_engine_bytes = 512 << 10;
// The same of a long one, while it lasts, where there is as much to spare: a huge page, from which
// a device reads past the page cache faster.
constexpr int64_t long_read_bytes = 4 << 20;
constexpr int64_t max_long_engine_bytes = 2 << 20;

// Read slab (in the source's axes) of the candidate, open as file, into buffer. The
// conversion needs no background. False on any error, and where only what is cached is to be read
// and not all is; the buffer then holds anything. announced: of a candidate of segments, as in
// sds/tiles.h.
bool transfer(const Host &host, sds_file *file, bool only_cached, uint8_t announced[],
              const sds_table_dataset &dataset, const sds_candidate &candidate,
              const sds_hyperslab &slab, const Conversion &conversion, const MemoryLayout &memory,
              void *buffer);

} // namespace sds::vol
