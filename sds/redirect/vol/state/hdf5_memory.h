// What HDF5 takes of malloc's memory on behalf of SDS.
//
// glibc's malloc keeps what threads free in an arena for each few of them, and does not give it
// back once a program has freed something large. So threads of few arenas have HDF5 open replicas,
// or decode chunks that the core cannot; others use what is open, or the originals.
#pragma once

#include <stdint.h>

namespace sds::vol
{

// Look whose malloc it is; while HDF5 loads the connector, as find_codecs of chunk_filters.h.
void find_malloc();
// The part of malloc's memory that this thread takes its own from: one of glibc's arenas, and with
// another malloc the thread's. To be called with the lock of shared_state.h held, as the next one.
uint64_t part_of_malloc();
// Whether that many files may be open at a time that were opened in a part. Once true, it stays so.
bool may_hold_files(uint64_t part, int n_files);
// Whether this thread may have HDF5 decode chunks, in so much memory. Once true, it stays so.
bool may_decode_by_hdf5(int64_t n_bytes);

} // namespace sds::vol
