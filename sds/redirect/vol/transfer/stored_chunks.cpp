#include "stored_chunks.h"

#include <string.h>

#include "decoding_team.h"
#include "sds/choose.h"
#include "sds/chunked_read.h"
#include "sds/permute.h"

namespace sds::vol
{
namespace
{

// What a read needs besides the chunks: too large for the stacks of some threads.
struct Workspace {
    sds_chunked_dataset dataset;
    sds_axis_spans axis[SDS_MAX_RANK];
    int64_t result_stride[SDS_MAX_RANK]; // bytes
    TeamSlot slots[most_team_slots];
};
constexpr int64_t workspace_bytes = 12 << 10;
static_assert(sizeof(Workspace) <= workspace_bytes, "the chunks follow it");

struct Reading {
    const ReplicaDataset &replica;
    const sds_hyperslab &slab;
    Workspace &work;
    int64_t chunk_bytes;
    char *out;
};

void describe(const sds_array &array, const int64_t chunk[], const sds_hyperslab &slab,
              Workspace &work)
{
    sds_chunked_dataset &dataset = work.dataset;
    dataset.rank = array.rank;
    dataset.element_bytes = array.element_bytes;
    dataset.n_filters = 0; // they are undone already
    dataset.edges_unfiltered = 0;
    int64_t stride = array.element_bytes;
    for (int32_t axis = array.rank - 1; axis >= 0; axis--) {
        const int64_t n = slab.count[axis] * slab.block[axis];
        dataset.extent[axis] = array.extent[axis];
        dataset.chunk[axis] = chunk[axis];
        work.axis[axis] = {static_cast<size_t>(slab.count[axis]),
                           nullptr,
                           {slab.start[axis], slab.block[axis], 0},
                           slab.stride[axis],
                           n};
        work.result_stride[axis] = stride;
        stride *= n;
    }
}

bool is_consecutive(const sds_hyperslab &slab, int32_t axis)
{
    return slab.count[axis] == 1 || slab.stride[axis] == slab.block[axis];
}

// The first index selected from one on; negative where there is none.
int64_t next_selected(const sds_hyperslab &slab, int32_t axis, int64_t index)
{
    if (index <= slab.start[axis]) return slab.start[axis];
    const int64_t stride = slab.count[axis] > 1 ? slab.stride[axis] : slab.block[axis];
    const int64_t i = (index - slab.start[axis]) / stride;
    if (i >= slab.count[axis]) return -1;
    if ((index - slab.start[axis]) % stride < slab.block[axis]) return index;
    return i + 1 < slab.count[axis] ? slab.start[axis] + (i + 1) * stride : -1;
}

// To the next chunk of which something is selected; false after the last.
bool advance(const Reading &self, int64_t index[])
{
    const int64_t *chunk = self.work.dataset.chunk;
    for (int32_t axis = self.slab.rank - 1; axis >= 0; axis--) {
        const int64_t next = next_selected(self.slab, axis, (index[axis] + 1) * chunk[axis]);
        index[axis] = (next < 0 ? self.slab.start[axis] : next) / chunk[axis];
        if (next >= 0) return true;
    }
    return false;
}

// Where the elements of a chunk lie in the result, side by side as in the chunk; nullptr where they
// do not, or are not all selected.
char *place_of(const Reading &self, const int64_t index[])
{
    const sds_hyperslab &slab = self.slab;
    const int64_t *chunk = self.work.dataset.chunk;
    int64_t offset = 0;
    bool is_outermost = true; // all axes so far have one index in the chunk
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        const int64_t n = slab.count[axis] * slab.block[axis];
        const int64_t first = index[axis] * chunk[axis] - slab.start[axis];
        if (!is_consecutive(slab, axis)) return nullptr;
        if (first < 0 || first + chunk[axis] > n || (!is_outermost && n != chunk[axis]))
            return nullptr;
        is_outermost = is_outermost && chunk[axis] == 1;
        offset += first * self.work.result_stride[axis];
    }
    return self.out + offset;
}

// Copy what is selected of a chunk.
bool copy_selected(const Reading &self, const int64_t index[], const char *elements)
{
    const sds_hyperslab &slab = self.slab;
    const sds_chunked_dataset &dataset = self.work.dataset;
    int64_t shape[SDS_MAX_RANK], from_stride[SDS_MAX_RANK], to_stride[SDS_MAX_RANK];
    int64_t from = 0, to = 0, unit = dataset.element_bytes;
    for (int32_t axis = slab.rank - 1; axis >= 0; axis--) {
        const int64_t begin = index[axis] * dataset.chunk[axis];
        const int64_t first = next_selected(slab, axis, begin);
        int64_t step = 1, end = slab.start[axis] + slab.count[axis] * slab.block[axis];
        if (!is_consecutive(slab, axis)) {
            if (slab.block[axis] > 1) { // no grid of elements
                auto *bytes = reinterpret_cast<uint8_t *>(const_cast<char *>(elements));
                const sds_chunk_list one = {1, index, nullptr, nullptr, nullptr, &bytes};
                return sds_copy_chunks(&dataset, self.work.axis, nullptr, &one, self.out) == SDS_OK;
            }
            step = slab.stride[axis];
            end = slab.start[axis] + (slab.count[axis] - 1) * step + 1;
        }
        if (end > begin + dataset.chunk[axis]) end = begin + dataset.chunk[axis];
        shape[axis] = (end - first - 1) / step + 1;
        from += (first - begin) * unit;
        from_stride[axis] = step * unit;
        to += (first - slab.start[axis]) / step * self.work.result_stride[axis];
        to_stride[axis] = self.work.result_stride[axis];
        unit *= dataset.chunk[axis];
    }
    return sds_copy_strided(slab.rank, shape, from_stride, to_stride,
                            static_cast<size_t>(dataset.element_bytes), elements + from,
                            self.out + to) == SDS_OK;
}

herr_t ask(const ReplicaDataset &replica, int operation, void *request)
{
    const Host &host = *replica.host;
    H5VL_optional_args_t args = {operation, request};
    return host.hdf5.H5VLdataset_optional(replica.object, host.native, &args, *host.default_dxpl,
                                          nullptr);
}

void find_first(const Reading &self, int64_t index[])
{
    for (int32_t axis = 0; axis < self.slab.rank; axis++)
        index[axis] = self.slab.start[axis] / self.work.dataset.chunk[axis];
}

// Bytes of a chunk as it is stored; 0 where there is none.
hsize_t stored_bytes(const Reading &self, const int64_t index[])
{
    hsize_t offset[SDS_MAX_RANK], size = 0;
    for (int32_t axis = 0; axis < self.slab.rank; axis++)
        offset[axis] = static_cast<hsize_t>(index[axis] * self.work.dataset.chunk[axis]);
    H5VL_native_dataset_get_chunk_storage_size_t asked = {offset, &size};
    return ask(self.replica, H5VL_NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE, &asked) < 0 ? 0 : size;
}

// Fetch a chunk as it is stored. HDF5 1.14 is not told how much room there is: of a chunk that it
// has just told the size of, it reads that much.
Fetched fetch(const Reading &self, FetchedChunk &chunk)
{
    hsize_t offset[SDS_MAX_RANK];
    const hsize_t size = stored_bytes(self, chunk.index);
    if (size == 0) return Fetched::not_by_core;
    for (int32_t axis = 0; axis < self.slab.rank; axis++)
        offset[axis] = static_cast<hsize_t>(chunk.index[axis] * self.work.dataset.chunk[axis]);
    if (size > static_cast<hsize_t>(most_stored_bytes(self.chunk_bytes))) return Fetched::failed;
    chunk.n_bytes = static_cast<size_t>(size);
    size_t found = chunk.n_bytes;
    H5VL_native_dataset_chunk_read_t read = {offset, 0, chunk.stored, &found};
    if (ask(self.replica, H5VL_NATIVE_DATASET_CHUNK_READ, &read) < 0 || found != chunk.n_bytes)
        return Fetched::failed;
    chunk.mask = read.filters;
    return Fetched::all;
}

bool decode(const void *context, const FetchedChunk &chunk, char *other, DecodingBlock &own)
{
    const auto &self = *static_cast<const Reading *>(context);
    char *place = place_of(self, chunk.index);
    const char *elements =
        decode_chunk(self.replica.filters, chunk.mask, own, chunk.stored, chunk.n_bytes, other,
                     place, static_cast<size_t>(self.chunk_bytes));
    return elements && (elements == place || copy_selected(self, chunk.index, elements));
}

// Whether all of some dozens of the chunks are there: else all that is decoded until one is missed
// is decoded in vain.
bool seem_to_be_there(const Reading &self, int64_t n_chunks)
{
    constexpr int64_t most_asked = 64;
    const int64_t step = n_chunks > most_asked ? n_chunks / most_asked : 1;
    int64_t index[SDS_MAX_RANK], number = 0;
    find_first(self, index);
    do {
        if (number++ % step == 0 && stored_bytes(self, index) == 0) return false;
    } while (advance(self, index));
    return true;
}

Fetched fetch_all(const Reading &self, DecodingTeam &team)
{
    int64_t index[SDS_MAX_RANK];
    find_first(self, index);
    do {
        FetchedChunk *chunk = team.next();
        if (!chunk) return Fetched::failed;
        memcpy(chunk->index, index, sizeof index);
        const Fetched outcome = fetch(self, *chunk);
        if (outcome != Fetched::all) return outcome;
        team.give(chunk);
    } while (advance(self, index));
    return team.finish() ? Fetched::all : Fetched::failed;
}

void prepare(const void *context, DecodingBlock &own)
{
    const ChunkFilters &filters = static_cast<const Reading *>(context)->replica.filters;
    for (int32_t k = 0; k < filters.n; k++)
        if (sds_filter_keeps_state(&filters.filter[k])) state_of(own, filters.filter[k]);
}

} // namespace

Fetched read_chunks(const ReplicaDataset &replica, const sds_array &array, const int64_t chunk[],
                    const sds_hyperslab &slab, DecodingBuffer &buffer, char *out)
{
    int64_t chunk_bytes = array.element_bytes;
    for (int32_t axis = 0; axis < array.rank; axis++)
        chunk_bytes *= chunk[axis];
    const int n_threads = replica.n_threads;
    const int64_t each = (most_stored_bytes(chunk_bytes) + 63) / 64 * 64;
    const int64_t n_bytes = workspace_bytes + team_chunks(n_threads) * each;
    if (!(replica.is_original ? buffer.take_own(n_bytes) : buffer.take(n_bytes)))
        return Fetched::no_room;
    auto *work = reinterpret_cast<Workspace *>(buffer.bytes());
    describe(array, chunk, slab, *work);
    const Reading self = {replica, slab, *work, chunk_bytes, out};
    const int64_t n_chunks = sds_chunks_touched(chunk, &slab);
    if (replica.is_original && !seem_to_be_there(self, n_chunks)) return Fetched::not_by_core;
    const int n_useful =
        n_chunks < 0 || n_chunks > n_threads ? n_threads : static_cast<int>(n_chunks);
    DecodingTeam team(n_useful, work->slots, buffer.bytes() + workspace_bytes, each,
                      {decode, &self, buffer.block(), prepare});
    return fetch_all(self, team);
}

} // namespace sds::vol
