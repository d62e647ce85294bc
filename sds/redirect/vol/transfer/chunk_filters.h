// Filters of chunks that the core undoes, with codecs of libraries that are installed.
#pragma once

#include "decoding_room.h"
#include "host.h"
#include "sds/filters.h"

namespace sds::vol
{

constexpr int max_core_filters = 3;

struct ChunkFilters {
    bool by_core;        // else HDF5 undoes them
    bool decompresses;   // one of them does
    bool is_faster;      // than HDF5, by one thread: by libdeflate
    bool takes_memory;   // from malloc, while one of them is undone
    bool has_checksum;   // of the chunk as it is stored, by the last one
    uint32_t of_plugins; // bit k: codec k is undone by functions of a plugin
    uint64_t n_unloaded; // images so far, when those functions were found
    // Greatest number of copies of a chunk in memory while HDF5 does: as it is stored, and without
    // each of two filters, of which the checksum is none; one more while it is inflated.
    int32_t most_places;
    int32_t n;
    sds_filter filter[max_core_filters]; // in the order of writing
};

// Look for codecs, where chunks may have to be decoded. While HDF5 loads the connector: later, with
// HDF5's lock held, another thread's library could wait for that in its constructor, with the
// loader's held.
void find_codecs();

// The filters of a dataset; false where HDF5 cannot tell them. with_plugins: functions are looked
// for in the plugins that HDF5 has, too.
bool find_filters(const Functions &hdf5, hid_t dcpl, bool with_plugins, ChunkFilters &out);
// Whether the functions of plugins are there still.
bool are_loaded(const ChunkFilters &filters);
// What is wrong with those of a replica; nullptr where nothing is.
const char *find_filters_of_replica(const Functions &hdf5, hid_t dcpl, ChunkFilters &out);

// Verify the checksum, if any, of the n bytes of a chunk as it is stored, then undo its other
// filters.
// mask: bit k: the k-th filter was not applied.
// stored, other: of most_stored_bytes(chunk_bytes); last: of chunk_bytes, where the elements are to
// be, or nullptr. Returns where the elements are; nullptr where the bytes are not what the filters
// write.
const char *decode_chunk(const ChunkFilters &filters, uint32_t mask, DecodingBlock &own,
                         char *stored, size_t n, char *other, char *last, size_t chunk_bytes);

// What a chunk takes at most as it is stored: where nothing is gained, deflate adds a thousandth,
// and LZ4 in the blocks of bitshuffle (8 KiB) a 157th.
constexpr int64_t most_stored_bytes(int64_t chunk_bytes)
{
    return chunk_bytes + chunk_bytes / 128 + 64;
}

} // namespace sds::vol
