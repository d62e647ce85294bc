#include "own_chunks.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "config.h"
#include "decoding_team.h"
#include "open_dataset.h"
#include "open_file.h"
#include "original_file.h"
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
// Of libdeflate, in times of zlib's, at least.
constexpr int inflating_speed = 2;

// What malloc keeps for each thread is address space, above all: 64 MiB.
bool may_address_more()
{
    rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

template <class T> T lesser(T one, T other)
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

// Processors that have nothing to do, of so many that are wanted. What runs for a moment must not
// slow down a long read: before one it is looked three times.
int idle_processors(int64_t read_bytes, int wanted)
{
    constexpr int64_t long_read_bytes = 32 << 20;
    constexpr timespec moment = {0, 200000};
    const int saved_errno = errno;
    int n = sds__idle_processors();
    for (int i = 1; i < 3 && n < wanted && read_bytes >= long_read_bytes; i++) {
        nanosleep(&moment, nullptr);
        n = sds__idle_processors();
    }
    errno = saved_errno;
    return lesser(n, wanted);
}

bool may_be_shared(const OwnChunks &chunks, int64_t n_chunks)
{
    return chunks.chunk_bytes >= least_shared_chunk &&
           times(chunks.chunk_bytes, n_chunks) >= least_shared_bytes;
}

// How many threads may decode so many chunks, at most.
int most_threads(const OwnChunks &chunks, int64_t n_chunks)
{
    int n = n_chunks < 0 || n_chunks > max_team ? max_team : static_cast<int>(n_chunks);
    n = team_within(n, chunks.chunk_bytes);
    if (config().n_threads > 0) return lesser(n, config().n_threads);
    if (config().n_ranks != 1 || !may_be_shared(chunks, n_chunks)) return 1;
    return lesser(n, config().n_processors);
}

// How many of them find a processor, and what else they need.
int threads_for(const OwnChunks &chunks, int64_t n_chunks, int most)
{
    if (most == 1 || (chunks.filters.takes_memory && !may_address_more())) return 1;
    if (config().n_threads > 0) return most;
    return 1 + idle_processors(times(chunks.chunk_bytes, n_chunks), most - 1);
}

// Whether reads may be shared by threads at all.
bool may_have_threads()
{
    if (config().n_threads > 0) return config().n_threads > 1;
    return config().n_ranks == 1 && config().n_processors > 1 && sds__own_processors() > 1;
}

// What the core takes for a chunk of a read that touches so many, in parts of HDF5's time.
int64_t core_parts(const OwnChunks &chunks, int64_t n_chunks)
{
    const bool by_two = n_chunks > 1 && may_be_shared(chunks, n_chunks) && chunks.n_granted != 1 &&
                        may_have_threads();
    return parts_of_a_chunk / ((chunks.filters.is_faster ? inflating_speed : 1) * (by_two ? 2 : 1));
}

// Whether to decode so many chunks so many times as fast as HDF5 gains more than what HDF5's cache
// may hold of them now, or would hold for the reads that follow.
bool gains(const OwnChunks &chunks, const StoredDataset &stored, const sds_hyperslab &slab,
           int64_t n_chunks, int speed)
{
    const int64_t bytes = times(chunks.chunk_bytes, n_chunks);
    const WalkedRead &read = chunks.latest;
    if (read.is_decoded || bytes > times(chunks.cache_bytes, times_the_cache)) return true;
    if (bytes <= chunks.cache_bytes) return false;
    const bool is_new = read.n_asked > 0 && read.n_held == 0;
    if (is_new && bytes - bytes / speed >= chunks.cache_bytes) return true;
    const bool is_held = read.n_asked > 0 && speed * (read.n_asked - read.n_held) <= read.n_asked;
    return !is_held && chunks_read_whole(stored, slab) >= n_chunks - n_chunks / 2;
}

// Which dataset of which file it is; 0 where that is not known.
uint64_t hash_of(const OpenDataset &dataset)
{
    uint64_t hash = dataset.file->original->fileno * UINT64_C(0x9E3779B97F4A7C15) ^
                    reinterpret_cast<uintptr_t>(dataset.host);
    for (const char *at = dataset.description.path; *at; at++)
        hash = (hash ^ static_cast<unsigned char>(*at)) * UINT64_C(0x100000001B3);
    return *dataset.description.path ? hash : 0;
}

// Chunks that HDF5's cache may be taken to hold. It does not drop those first that were asked for
// least lately, and so holds some for which there would be no room: of reads of nine chunks each,
// one further than the last, it decodes 1.6, with room for eight; of twelve each, all.
int64_t most_held(const OwnChunks &chunks)
{
    const int64_t room = chunks.cache_bytes / chunks.chunk_bytes;
    return room > 0 ? room + room / 8 + 1 : 0;
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
                       options == 0 && find_filters(hdf5, dcpl, may_have_threads(), out) &&
                       out.decompresses;
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
        (!found.filters.is_faster && !may_have_threads() && config().engine != Engine::always))
        return nullptr;
    auto *made = static_cast<OwnChunks *>(malloc(sizeof(OwnChunks)));
    if (!made) return nullptr;
    if (found.chunk_bytes >= least_shared_chunk)
        found.walk = begin_walk(hash_of(dataset), most_held(found));
    *made = found;
    return made;
}

void release_own_chunks(OwnChunks *chunks)
{
    if (chunks) end_walk(chunks->walk);
    free(chunks);
}

Span see_span(OwnChunks &chunks, const StoredDataset &stored, const int64_t low[],
              const int64_t high[], bool is_box)
{
    int64_t first[SDS_MAX_RANK], last[SDS_MAX_RANK], bytes = chunks.chunk_bytes;
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        first[axis] = low[axis] / stored.chunk[axis];
        last[axis] = high[axis] / stored.chunk[axis];
        bytes = times(bytes, last[axis] - first[axis] + 1);
    }
    if (is_box && chunks.walk)
        chunks.latest = follow(*chunks.walk, stored.rank, first, last,
                               core_parts(chunks, bytes / chunks.chunk_bytes));
    else
        miss_read(chunks);
    const WalkedRead &read = chunks.latest;
    if (bytes > chunks.cache_bytes || read.is_decoded || config().engine == Engine::always)
        return Span::decoded_perhaps;
    return read.n_asked > 0 && read.n_held == 0 ? Span::new_to_cache : Span::held_by_cache;
}

void miss_read(OwnChunks &chunks)
{
    chunks.latest = {};
    if (chunks.walk) lose_track(*chunks.walk);
}

int threads_to_decode(OwnChunks &chunks, const StoredDataset &stored, const sds_hyperslab &slab)
{
    const int64_t n_chunks = sds_chunks_touched(stored.chunk, &slab);
    const int most = most_threads(chunks, n_chunks);
    const int speed_of_one = chunks.filters.is_faster ? inflating_speed : 1;
    const bool is_asked_for = config().engine == Engine::always;
    const auto is_worth = [&](int n) {
        return is_asked_for ||
               (n * speed_of_one > 1 && gains(chunks, stored, slab, n_chunks, n * speed_of_one));
    };
    // To look for idle processors takes time as well.
    const bool is_possible = are_loaded(chunks.filters) && is_worth(most);
    const int n = is_possible ? threads_for(chunks, n_chunks, most) : 0;
    if (most > 1) chunks.n_granted = n;
    return is_possible && is_worth(n) ? n : 0;
}

} // namespace sds::vol
