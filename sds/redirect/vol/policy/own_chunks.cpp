#include "own_chunks.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "config.h"
#include "decoding_team.h"
#include "open_dataset.h"
#include "open_file.h"
#include "queries.h"
#include "sds/choose.h"
#include "threads.h"
#include "type_digest.h"

namespace sds::vol
{
namespace
{

// To start a thread takes 20 us, and to find out whether a processor is idle as long; to inflate a
// MiB takes a millisecond and more. Of small chunks each takes no longer than to hand it over.
constexpr int64_t least_shared_bytes = 1 << 20;
constexpr int64_t least_shared_chunk = 16 << 10;

// Of elements. While it is decoded a chunk takes twice as much, as with HDF5.
constexpr int64_t most_chunk_bytes = 64 << 20;
// HDF5 reads small datasets faster than their filters are looked at.
constexpr int64_t least_dataset_bytes = 64 << 10;
// Of deeper recursion small threads' stacks have no room.
constexpr int32_t most_rank = 8;

// A read of so many times what HDF5 keeps loses by it less than it gains.
constexpr int64_t times_the_cache = 4;

// What malloc keeps for each thread is address space, above all: 64 MiB.
bool may_address_more()
{
    rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

int less(int one, int other)
{
    return one < other ? one : other;
}

// n times as many bytes; INT64_MAX where that is too many.
int64_t times(int64_t bytes, int64_t n)
{
    return n < 0 || __builtin_mul_overflow(bytes, n, &bytes) ? INT64_MAX : bytes;
}

// Chunks that a selection takes whole.
int64_t chunks_read_whole(const StoredDataset &stored, const sds_hyperslab &slab)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        const int64_t chunk = stored.chunk[axis], start = slab.start[axis];
        if (slab.count[axis] > 1 && slab.stride[axis] != slab.block[axis]) return 0;
        int64_t end = start + slab.count[axis] * slab.block[axis];
        if (end == stored.extent[axis]) end = (end + chunk - 1) / chunk * chunk;
        const int64_t first = (start + chunk - 1) / chunk;
        n = times(n, end / chunk > first ? end / chunk - first : 0);
    }
    return n;
}

bool is_much(const OwnChunks &chunks, const StoredDataset &stored, const sds_hyperslab &slab)
{
    if (config().engine == Engine::always) return true;
    const int64_t n = sds_chunks_touched(stored.chunk, &slab);
    const int64_t bytes = times(chunks.chunk_bytes, n);
    return bytes > times(chunks.cache_bytes, times_the_cache) ||
           (bytes > chunks.cache_bytes && chunks_read_whole(stored, slab) >= n - n / 2);
}

// Whether the dataset may be read so at all, as far as its shape and its chunks tell.
bool measure(const StoredDataset &stored, int64_t &chunk_bytes, int64_t &all_bytes)
{
    chunk_bytes = all_bytes = stored.element_bytes;
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        const int64_t chunk = stored.chunk[axis];
        if (chunk < 1 || __builtin_mul_overflow(chunk_bytes, chunk, &chunk_bytes) ||
            __builtin_mul_overflow(all_bytes, stored.extent[axis], &all_bytes))
            return false;
    }
    const bool is_large = all_bytes > least_dataset_bytes || config().engine == Engine::always;
    return chunk_bytes > 0 && chunk_bytes <= most_chunk_bytes && is_large;
}

bool are_filters_known(const Object &object, ChunkFilters &out)
{
    const Functions &hdf5 = object.hdf5();
    const hid_t dcpl = creation_properties_of(object);
    if (dcpl < 0) return false;
    // Chunks at the edges may be stored without filters, which their masks do not say.
    unsigned options = 0;
    const bool known = hdf5.H5Pget_chunk_opts && hdf5.H5Pget_chunk_opts(dcpl, &options) >= 0 &&
                       options == 0 && find_filters(hdf5, dcpl, true, out) && out.decompresses;
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
        stored.rank > most_rank || object.connector != host.native)
        return nullptr;
    OwnChunks found = {};
    int64_t all_bytes = 0;
    size_t n_slots = 0, cache_bytes = 0;
    if (!measure(stored, found.chunk_bytes, all_bytes) ||
        !chunk_cache_of(object, n_slots, cache_bytes) || cache_bytes > INT64_MAX)
        return nullptr;
    found.cache_bytes = n_slots > 0 ? static_cast<int64_t>(cache_bytes) : 0;
    if ((all_bytes <= found.cache_bytes && config().engine != Engine::always) ||
        !has_digest(host, type) || !are_filters_known(object, found.filters) ||
        (!found.filters.is_faster && config().n_threads == 1 && config().engine != Engine::always))
        return nullptr;
    auto *made = static_cast<OwnChunks *>(malloc(sizeof(OwnChunks)));
    if (made) *made = found;
    return made;
}

bool spans_much(const OwnChunks &chunks, const StoredDataset &stored, const int64_t low[],
                const int64_t high[])
{
    int64_t bytes = chunks.chunk_bytes;
    for (int32_t axis = 0; axis < stored.rank; axis++)
        bytes = times(bytes, high[axis] / stored.chunk[axis] - low[axis] / stored.chunk[axis] + 1);
    return bytes > chunks.cache_bytes || config().engine == Engine::always;
}

int threads_to_decode(const OwnChunks &chunks, const StoredDataset &stored,
                      const sds_hyperslab &slab)
{
    if (!is_much(chunks, stored, slab)) return 0;
    const int64_t n_chunks = sds_chunks_touched(stored.chunk, &slab);
    int most = n_chunks < 0 || n_chunks > max_team ? max_team : static_cast<int>(n_chunks);
    most = team_within(most, chunks.chunk_bytes);
    const bool is_long = chunks.chunk_bytes >= least_shared_chunk &&
                         times(chunks.chunk_bytes, n_chunks) >= least_shared_bytes;
    int n = 1;
    if (config().n_threads > 0)
        n = config().n_threads;
    else if (most > 1 && is_long && config().n_ranks == 1)
        n = 1 + less(sds__idle_processors(), config().n_processors - 1);
    n = less(n, most);
    if (n > 1 && chunks.filters.takes_memory && !may_address_more()) n = 1;
    const bool gains = n > 1 || chunks.filters.is_faster || config().engine == Engine::always;
    return gains ? n : 0;
}

} // namespace sds::vol
