#include "own_chunks.h"

#include <stdlib.h>

#include "config.h"
#include "open_dataset.h"
#include "open_file.h"
#include "queries.h"
#include "sds/choose.h"
#include "type_digest.h"

namespace sds::vol
{
namespace
{

// Of elements. While it is decoded a chunk takes twice as much, as with HDF5.
constexpr int64_t most_chunk_bytes = 64 << 20;

// Bytes of all chunks from first to last, in numbers of chunks; INT64_MAX where they are too many.
int64_t bytes_of(const OwnChunks &chunks, int32_t rank, const int64_t first[], const int64_t last[])
{
    int64_t bytes = chunks.chunk_bytes;
    for (int32_t axis = 0; axis < rank; axis++)
        if (__builtin_mul_overflow(bytes, last[axis] - first[axis] + 1, &bytes)) return INT64_MAX;
    return bytes;
}

bool is_much(const OwnChunks &chunks, int64_t bytes)
{
    return bytes > chunks.cache_bytes || config().engine == Engine::always;
}

bool measure(const StoredDataset &stored, OwnChunks &out)
{
    int64_t all_bytes = out.chunk_bytes = stored.element_bytes;
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        const int64_t chunk = stored.chunk[axis];
        if (chunk < 1 || __builtin_mul_overflow(out.chunk_bytes, chunk, &out.chunk_bytes) ||
            __builtin_mul_overflow(all_bytes, stored.extent[axis], &all_bytes))
            return false;
    }
    return out.chunk_bytes > 0 && out.chunk_bytes <= most_chunk_bytes && is_much(out, all_bytes);
}

bool are_filters_known(const Object &object, ChunkFilters &out)
{
    const Functions &hdf5 = object.hdf5();
    const hid_t dcpl = creation_properties_of(object);
    if (dcpl < 0) return false;
    const bool known = find_filters(hdf5, dcpl, out) && out.by_core && out.is_faster;
    hdf5.H5Pclose(dcpl);
    return known;
}

} // namespace

OwnChunks *find_own_chunks(const Object &object, const OpenDataset &dataset, hid_t type)
{
    const StoredDataset &stored = dataset.description;
    const Host &host = *object.host;
    if (!dataset.file->original || config().engine == Engine::never ||
        stored.storage != SDS_STORAGE_CHUNKED || stored.n_filters == 0 || stored.rank < 1 ||
        object.connector != host.native)
        return nullptr;
    OwnChunks found = {};
    size_t n_slots = 0, cache_bytes = 0;
    if (!chunk_cache_of(object, n_slots, cache_bytes) || cache_bytes > INT64_MAX) return nullptr;
    found.cache_bytes = n_slots > 0 ? static_cast<int64_t>(cache_bytes) : 0;
    if (!measure(stored, found) || !has_digest(host, type) ||
        !are_filters_known(object, found.filters))
        return nullptr;
    auto *made = static_cast<OwnChunks *>(malloc(sizeof(OwnChunks)));
    if (made) *made = found;
    return made;
}

bool spans_much(const OwnChunks &chunks, const StoredDataset &stored, const int64_t low[],
                const int64_t high[])
{
    int64_t first[SDS_MAX_RANK], last[SDS_MAX_RANK];
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        first[axis] = low[axis] / stored.chunk[axis];
        last[axis] = high[axis] / stored.chunk[axis];
    }
    return is_much(chunks, bytes_of(chunks, stored.rank, first, last));
}

bool touches_much(const OwnChunks &chunks, const StoredDataset &stored, const sds_hyperslab &slab)
{
    const int64_t n = sds_chunks_touched(stored.chunk, &slab);
    int64_t bytes = 0;
    return n < 0 ||
           is_much(chunks,
                   __builtin_mul_overflow(n, chunks.chunk_bytes, &bytes) ? INT64_MAX : bytes);
}

} // namespace sds::vol
