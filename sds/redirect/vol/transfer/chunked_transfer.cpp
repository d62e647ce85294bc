#include "chunked_transfer.h"

#include <string.h>

#include "chunk_cache.h"
#include "error_stack.h"
#include "hdf5_memory.h"
#include "library_context.h"
#include "scratch.h"
#include "sds/candidate.h"
#include "sds/permute.h"
#include "stored_chunks.h"

namespace sds::vol
{
namespace
{

constexpr int select_set = 0; // H5S_SELECT_SET
constexpr int64_t most_original_piece = 16 << 20;

// An identifier of a dataspace that is closed at the end.
class Space
{
  public:
    Space(const Functions &hdf5, int32_t rank, const int64_t extent[]) : hdf5_(hdf5)
    {
        hsize_t dimension[SDS_MAX_RANK];
        for (int32_t axis = 0; axis < rank; axis++)
            dimension[axis] = static_cast<hsize_t>(extent[axis]);
        id_ = hdf5.H5Screate_simple(rank, dimension, nullptr);
    }
    ~Space()
    {
        if (id_ >= 0) hdf5_.H5Sclose(id_);
    }
    Space(const Space &) = delete;
    Space &operator=(const Space &) = delete;

    hid_t id() const { return id_; }
    bool select(const sds_hyperslab &slab) const
    {
        hsize_t start[SDS_MAX_RANK], stride[SDS_MAX_RANK], count[SDS_MAX_RANK], block[SDS_MAX_RANK];
        for (int32_t axis = 0; axis < slab.rank; axis++) {
            start[axis] = static_cast<hsize_t>(slab.start[axis]);
            stride[axis] = static_cast<hsize_t>(slab.stride[axis]);
            count[axis] = static_cast<hsize_t>(slab.count[axis]);
            block[axis] = static_cast<hsize_t>(slab.block[axis]);
        }
        return id_ >= 0 &&
               hdf5_.H5Sselect_hyperslab(id_, select_set, start, stride, count, block) >= 0;
    }

  private:
    const Functions &hdf5_;
    hid_t id_;
};

// A read in the replica's axes.
struct ChunkedTransfer {
    const ReplicaDataset &replica;
    const sds_array &array;
    const int64_t *chunk; // its shape
    hid_t type;
    sds_hyperslab slab;
    // Axes on which a piece is read whole and picked apart. HDF5 decodes all of it anyway, and
    // copies what is selected in steps element by element.
    bool picked[SDS_MAX_RANK];
    int64_t window[SDS_MAX_RANK];        // indices of a piece, whole chunks
    int64_t memory_stride[SDS_MAX_RANK]; // bytes
    const Conversion &conversion;
    DecodingBuffer buffer;
    char *piece;
    bool has_no_room; // for decoding
    bool is_not_kept; // a chunk that was decoded for the read before
};

int64_t element_bytes_of(const Conversion &conversion)
{
    return conversion.from_bytes > conversion.to_bytes ? conversion.from_bytes
                                                       : conversion.to_bytes;
}

// Blocks that touch, and a block that is alone, are selected index by index.
void normalize(sds_hyperslab &slab)
{
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        if (slab.count[axis] > 1 && slab.stride[axis] != slab.block[axis]) continue;
        slab.count[axis] *= slab.block[axis];
        slab.stride[axis] = slab.block[axis] = 1;
    }
}

// Indices read on an axis in a window, at most.
int64_t most_read(const ChunkedTransfer &self, int32_t axis, int64_t window)
{
    const sds_hyperslab &slab = self.slab;
    const int64_t selected = slab.count[axis] * slab.block[axis];
    const int64_t all =
        self.picked[axis] ? (slab.count[axis] - 1) * slab.stride[axis] + 1 : selected;
    const bool in_steps = slab.block[axis] == 1 && !self.picked[axis];
    const int64_t most = in_steps ? (window + slab.stride[axis] - 1) / slab.stride[axis] : window;
    return most < all ? most : all;
}

// Elements are read, converted and put in place in pieces of whole chunks, larger than others
// where what is selected of one chunk is. Choose windows as long as fits on the last axis, then on
// those before it.
// Returns the elements of the greatest piece.
int64_t plan_windows(ChunkedTransfer &self, const sds_candidate &candidate, int64_t element_bytes)
{
    const sds_hyperslab &slab = self.slab;
    const int64_t most_elements = most_piece_bytes() / element_bytes;
    int64_t read[SDS_MAX_RANK], elements = 1;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        self.window[axis] = candidate.chunks.shape[axis];
        self.picked[axis] = slab.block[axis] == 1 && slab.stride[axis] > 1 &&
                            slab.stride[axis] <= self.window[axis];
        read[axis] = most_read(self, axis, self.window[axis]);
        elements *= read[axis];
    }
    for (int32_t axis = slab.rank - 1; axis >= 0; axis--) {
        const int64_t end =
            slab.start[axis] + (slab.count[axis] - 1) * slab.stride[axis] + slab.block[axis];
        while (self.window[axis] < end) {
            const int64_t longer = 2 * self.window[axis];
            const int64_t more = elements / read[axis] * most_read(self, axis, longer);
            if (more > most_elements) break;
            elements = more;
            self.window[axis] = longer;
            read[axis] = most_read(self, axis, longer);
        }
    }
    return elements;
}

// Cut the slab to the indices of one axis from `index` on that lie evenly in one window; returns
// how many.
int64_t cut_to_window(sds_hyperslab &slab, int32_t axis, int64_t index, int64_t window)
{
    const int64_t block = slab.block[axis], stride = slab.stride[axis];
    const int64_t within = index % block;
    const int64_t at = slab.start[axis] + index / block * stride + within;
    const int64_t room = (at / window + 1) * window - at;
    const int64_t blocks_left = slab.count[axis] - index / block;
    slab.start[axis] = at;
    if (within != 0 || block > room) {
        slab.count[axis] = 1;
        slab.block[axis] = block - within < room ? block - within : room;
        return slab.block[axis];
    }
    const int64_t blocks = (room - block) / stride + 1;
    slab.count[axis] = blocks < blocks_left ? blocks : blocks_left;
    return slab.count[axis] * block;
}

bool is_box(const sds_hyperslab &slab)
{
    for (int32_t axis = 0; axis < slab.rank; axis++)
        if (slab.count[axis] > 1 && slab.stride[axis] > 1) return false;
    return true;
}

// shape: of the slab. A memory space of the same shape spares HDF5 to match them element by
// element.
bool read_by_hdf5(const ChunkedTransfer &self, const sds_hyperslab &slab, const int64_t shape[],
                  void *out)
{
    const Host &host = *self.replica.host;
    const Space packed(host.hdf5, slab.rank, shape);
    const Space whole(host.hdf5, slab.rank, self.array.extent);
    void *object = self.replica.object;
    hid_t type = self.type, memory = packed.id(), file = whole.id();
    return memory >= 0 && whole.select(slab) &&
           host.hdf5.H5VLdataset_read(1, &object, host.native, &type, &memory, &file,
                                      *host.default_dxpl, &out, nullptr) >= 0;
}

bool read_slab(ChunkedTransfer &self, const sds_hyperslab &slab, const int64_t shape[], char *out)
{
    Fetched outcome = Fetched::not_by_core;
    if (self.replica.filters.by_core)
        outcome = read_chunks(self.replica, self.array, self.chunk, slab, self.buffer, out);
    if (outcome == Fetched::not_by_core && !self.replica.is_original) {
        int64_t chunk_bytes = self.array.element_bytes;
        for (int32_t axis = 0; axis < slab.rank; axis++)
            chunk_bytes *= self.chunk[axis];
        if (may_decode_by_hdf5(self.replica.filters.most_places * chunk_bytes))
            return read_by_hdf5(self, slab, shape, out);
        outcome = Fetched::no_room;
    }
    self.has_no_room = outcome == Fetched::no_room;
    return outcome == Fetched::all;
}

// A program may have registered a filter of its own under the number of a plugin that is loaded as
// well, and HDF5 does not tell whose it calls. So before a file is decoded by a plugin's functions,
// both read the chunk in which the slab begins.
bool are_filters_of_hdf5(ChunkedTransfer &self)
{
    const ReplicaDataset &replica = self.replica;
    const uint32_t codecs = replica.filters.of_plugins;
    if (!replica.compared || (codecs & ~__atomic_load_n(replica.compared, __ATOMIC_RELAXED)) == 0)
        return true;
    sds_hyperslab box;
    int64_t n_bytes = self.array.element_bytes;
    box.rank = self.slab.rank;
    for (int32_t axis = 0; axis < box.rank; axis++) {
        const int64_t chunk = self.chunk[axis];
        box.start[axis] = self.slab.start[axis] / chunk * chunk;
        const int64_t left = self.array.extent[axis] - box.start[axis];
        box.count[axis] = chunk < left ? chunk : left;
        box.stride[axis] = box.block[axis] = 1;
        n_bytes *= box.count[axis];
    }
    Scratch by_core, by_hdf5;
    self.has_no_room = !by_core.allocate(n_bytes) || !by_hdf5.allocate(n_bytes);
    if (self.has_no_room || !read_slab(self, box, box.count, by_core.bytes()) ||
        !read_by_hdf5(self, box, box.count, by_hdf5.bytes()) ||
        memcmp(by_core.bytes(), by_hdf5.bytes(), static_cast<size_t>(n_bytes)) != 0)
        return false;
    __atomic_fetch_or(replica.compared, codecs, __ATOMIC_RELAXED);
    return true;
}

bool move_piece(ChunkedTransfer &self, const sds_hyperslab &slab, char *destination)
{
    sds_hyperslab box = slab;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        if (!self.picked[axis]) continue;
        box.count[axis] = (slab.count[axis] - 1) * slab.stride[axis] + 1;
        box.stride[axis] = 1;
    }
    int64_t shape[SDS_MAX_RANK], box_shape[SDS_MAX_RANK], piece_stride[SDS_MAX_RANK];
    sds_hyperslab_shape(&slab, shape);
    sds_hyperslab_shape(&box, box_shape);
    int64_t n_elements = 1;
    for (int32_t axis = slab.rank - 1; axis >= 0; axis--) {
        const int64_t step = self.picked[axis] ? slab.stride[axis] : 1;
        piece_stride[axis] = n_elements * step * self.conversion.to_bytes;
        n_elements *= box_shape[axis];
    }
    return read_slab(self, box, box_shape, self.piece) &&
           convert(*self.replica.host, self.conversion, n_elements, self.piece, nullptr) &&
           sds_copy_strided(slab.rank, shape, piece_stride, self.memory_stride,
                            static_cast<size_t>(self.conversion.to_bytes), self.piece,
                            destination) == SDS_OK;
}

bool move_from(ChunkedTransfer &self, int32_t axis, const sds_hyperslab &slab, char *destination)
{
    if (axis == slab.rank) return move_piece(self, slab, destination);
    const int64_t n = slab.count[axis] * slab.block[axis];
    for (int64_t index = 0; index < n;) {
        sds_hyperslab part = slab;
        const int64_t taken = cut_to_window(part, axis, index, self.window[axis]);
        if (!move_from(self, axis + 1, part, destination + index * self.memory_stride[axis]))
            return false;
        index += taken;
    }
    return true;
}

// The whole chunks around what is selected. False where they are too large to be cached, or no more
// than what is selected: then the next read does not need them.
bool find_chunks(const sds_hyperslab &slab, const sds_array &array, const sds_candidate &candidate,
                 sds_hyperslab &box, int64_t &n_bytes)
{
    int64_t n_selected = n_bytes = array.element_bytes;
    box.rank = slab.rank;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        const int64_t chunk = candidate.chunks.shape[axis];
        const int64_t last =
            slab.start[axis] + (slab.count[axis] - 1) * slab.stride[axis] + slab.block[axis] - 1;
        const int64_t whole = (last / chunk + 1) * chunk;
        const int64_t end = whole < array.extent[axis] ? whole : array.extent[axis];
        box.start[axis] = slab.start[axis] / chunk * chunk;
        box.stride[axis] = box.block[axis] = 1;
        box.count[axis] = end - box.start[axis];
        n_selected *= slab.count[axis] * slab.block[axis];
        if (__builtin_mul_overflow(n_bytes, box.count[axis], &n_bytes) ||
            n_bytes > max_cached_bytes)
            return false;
    }
    return n_bytes > n_selected;
}

// How a slab lies in a box of elements of that size; false where it is no grid of elements.
bool find_in_box(const sds_hyperslab &slab, const sds_hyperslab &box, int64_t element_bytes,
                 int64_t stride[], int64_t &offset)
{
    int64_t step = element_bytes;
    offset = 0;
    for (int32_t axis = slab.rank - 1; axis >= 0; axis--) {
        if (slab.count[axis] > 1 && slab.block[axis] > 1) return false;
        stride[axis] = step * (slab.block[axis] == 1 ? slab.stride[axis] : 1);
        offset += step * (slab.start[axis] - box.start[axis]);
        step *= box.count[axis];
    }
    return true;
}

void packed_strides(int32_t rank, const int64_t shape[], int64_t element_bytes, int64_t stride[])
{
    for (int32_t axis = rank - 1; axis >= 0; axis--) {
        stride[axis] = element_bytes;
        element_bytes *= shape[axis];
    }
}

// Move elements that lie in memory, converted on the way.
bool move_elements(const ChunkedTransfer &self, const int64_t shape[], const int64_t stride[],
                   const char *elements, char *destination)
{
    const Conversion &conversion = self.conversion;
    const int32_t rank = self.slab.rank;
    const auto from_bytes = static_cast<size_t>(conversion.from_bytes);
    if (conversion.from == 0)
        return sds_copy_strided(rank, shape, stride, self.memory_stride, from_bytes, elements,
                                destination) == SDS_OK;
    int64_t n_elements = 1, packed[SDS_MAX_RANK];
    for (int32_t axis = 0; axis < rank; axis++)
        n_elements *= shape[axis];
    Scratch piece;
    if (!piece.allocate(n_elements * element_bytes_of(conversion))) return false;
    packed_strides(rank, shape, conversion.from_bytes, packed);
    if (sds_copy_strided(rank, shape, stride, packed, from_bytes, elements, piece.bytes()) !=
            SDS_OK ||
        !convert(*self.replica.host, conversion, n_elements, piece.bytes(), nullptr))
        return false;
    packed_strides(rank, shape, conversion.to_bytes, packed);
    return sds_copy_strided(rank, shape, packed, self.memory_stride,
                            static_cast<size_t>(conversion.to_bytes), piece.bytes(),
                            destination) == SDS_OK;
}

// What became of a read that the cache was asked for.
enum class Cached { not_meant, moved, failed };

Cached move_from_cache(ChunkedTransfer &self, const sds_candidate &candidate, const int64_t shape[],
                       char *destination)
{
    const sds_array &array = self.array;
    sds_hyperslab box;
    int64_t stride[SDS_MAX_RANK], offset, n_bytes;
    // Converted elements may be much larger than those in the chunks.
    if (element_bytes_of(self.conversion) > 2 * array.element_bytes ||
        !find_chunks(self.slab, array, candidate, box, n_bytes) ||
        !find_in_box(self.slab, box, array.element_bytes, stride, offset))
        return Cached::not_meant;
    CachedBox cached(self.replica, box, n_bytes);
    self.is_not_kept = cached.is_refused_again();
    if (self.is_not_kept) return Cached::failed;
    if (!cached.bytes()) return Cached::not_meant;
    if (!cached.is_filled()) {
        if (!read_slab(self, box, box.count, cached.bytes())) return Cached::failed;
        cached.set_filled();
    }
    return move_elements(self, shape, stride, cached.bytes() + offset, destination)
               ? Cached::moved
               : Cached::failed;
}

// Whether no piece has more than one chunk, which threads cannot share.
bool is_read_chunk_by_chunk(const ChunkedTransfer &self)
{
    const sds_hyperslab &slab = self.slab;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        const int64_t last = (slab.count[axis] - 1) * slab.stride[axis] + slab.block[axis] - 1;
        if (self.window[axis] > self.chunk[axis] && last >= self.chunk[axis]) return false;
    }
    return true;
}

bool move(ChunkedTransfer &self, const sds_candidate &candidate, const MemoryLayout &memory,
          char *destination)
{
    int64_t shape[SDS_MAX_RANK];
    sds_hyperslab_shape(&self.slab, shape);
    if (!self.replica.is_original) {
        const Cached outcome = move_from_cache(self, candidate, shape, destination);
        if (outcome != Cached::not_meant) return outcome == Cached::moved;
    }
    if (self.conversion.from == 0 && memory.is_packed && is_box(self.slab) &&
        sds_candidate_keeps_order(&candidate, shape))
        return read_slab(self, self.slab, shape, destination);

    const int64_t element_bytes = element_bytes_of(self.conversion);
    const int64_t most = plan_windows(self, candidate, element_bytes);
    // HDF5 converts chunks bit by bit.
    self.has_no_room = self.replica.is_original &&
                       (most > most_original_piece / element_bytes ||
                        (!self.replica.filters.is_faster && is_read_chunk_by_chunk(self)));
    if (self.has_no_room) return false;
    Scratch piece;
    if (!piece.allocate(most * element_bytes)) return false;
    self.piece = piece.bytes();
    return move_from(self, 0, self.slab, destination);
}

} // namespace

Transferred transfer_chunked(const ReplicaDataset &replica, hid_t type,
                             const sds_table_dataset &dataset, const sds_candidate &candidate,
                             const sds_hyperslab &slab, const Conversion &conversion,
                             const MemoryLayout &memory, void *buffer)
{
    const Host &host = *replica.host;
    SilenceKeeper silence(host);
    ErrorStackKeeper keep(host);
    const LibraryContext context(host);
    if (!context.ok()) return Transferred::failed;
    sds_array array;
    sds_candidate_array(&candidate, &dataset, &array);
    ChunkedTransfer self = {
        replica, array, candidate.chunks.shape, type, {}, {}, {}, {}, conversion, {}, nullptr,
        false,   false};
    if (sds_candidate_slab(&candidate, &slab, &self.slab) != SDS_OK) return Transferred::failed;
    normalize(self.slab);
    for (int32_t axis = 0; axis < array.rank; axis++)
        self.memory_stride[axis] = memory.stride_bytes[candidate.order[axis]];
    if (are_filters_of_hdf5(self) &&
        move(self, candidate, memory, static_cast<char *>(buffer) + memory.offset_bytes))
        return Transferred::all;
    if (self.is_not_kept) return Transferred::not_kept;
    return self.has_no_room ? Transferred::no_room : Transferred::failed;
}

} // namespace sds::vol
