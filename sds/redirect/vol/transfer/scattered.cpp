#include "scattered.h"

#include <string.h>

#include "element_walk.h"
#include "error_stack.h"
#include "replica_map.h"
#include "scratch.h"
#include "selection.h"
#include "transfer.h"

namespace sds::vol
{
namespace
{

// Elements are read, converted and put in place in batches of at most this many pieces of the
// replica.
constexpr int64_t max_pieces = 1 << 15;
// A selection of points that spans more places than this, in no order, is not checked.
constexpr int64_t max_places = 1 << 24;

constexpr hid_t packed = H5S_ALL; // a memory space of all the elements one after the other

// H5S_sel_type
constexpr int points = 1;
constexpr int hyperslabs = 2;
constexpr int all = 3;

bool is_increasing(const Host &host, hid_t space, int64_t n_elements)
{
    ElementWalk walk(host, space, n_elements);
    ElementRun run;
    int64_t end = 0;
    while (walk.next(n_elements, run)) {
        if (run.offset < end) return false;
        end = run.offset + run.length;
    }
    return walk.n_left() == 0;
}

// The least and the greatest place among those of a selection.
bool find_range(const Host &host, hid_t space, int64_t &first, int64_t &last)
{
    hsize_t extent[SDS_MAX_RANK], low[SDS_MAX_RANK], high[SDS_MAX_RANK];
    const int rank = host.hdf5.H5Sget_simple_extent_dims(space, extent, nullptr);
    if (rank <= 0 || host.hdf5.H5Sget_select_bounds(space, low, high) < 0) return false;
    first = last = 0;
    for (int axis = 0; axis < rank; axis++) {
        const auto n = static_cast<int64_t>(extent[axis]);
        first = first * n + static_cast<int64_t>(low[axis]);
        last = last * n + static_cast<int64_t>(high[axis]);
    }
    return true;
}

bool are_distinct(const Host &host, hid_t space, int64_t n_elements)
{
    if (is_increasing(host, space, n_elements)) return true;
    int64_t first = 0, last = 0;
    if (!find_range(host, space, first, last) || last - first >= max_places) return false;
    const int64_t n_bytes = (last - first) / 8 + 1;
    Scratch bits;
    if (!bits.allocate(n_bytes)) return false;
    char *taken = bits.bytes();
    memset(taken, 0, static_cast<size_t>(n_bytes));
    ElementWalk walk(host, space, n_elements);
    ElementRun run;
    bool distinct = true;
    while (distinct && walk.next(1, run)) {
        const int64_t place = run.offset - first;
        const int bit = 1 << (place % 8);
        distinct = !(taken[place / 8] & bit);
        taken[place / 8] = static_cast<char>(taken[place / 8] | bit);
    }
    return distinct && walk.n_left() == 0;
}

// Elements between a packed batch and the program's memory.
void copy_run(char *to, const char *from, int64_t n_elements, int64_t element_bytes)
{
    if (n_elements > 1) {
        memcpy(to, from, static_cast<size_t>(n_elements * element_bytes));
        return;
    }
    switch (element_bytes) { // single elements come by the thousand
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    default:
        memcpy(to, from, static_cast<size_t>(element_bytes));
    }
}

class ScatteredTransfer
{
  public:
    ScatteredTransfer(const Host &host, sds_file *file, bool only_cached,
                      const sds_table_dataset &dataset, const sds_candidate &candidate,
                      const ScatteredRead &read, const Conversion &conversion, void *buffer);
    ScatteredTransfer(const ScatteredTransfer &) = delete;
    ScatteredTransfer &operator=(const ScatteredTransfer &) = delete;

    bool run();

  private:
    bool allocate();
    bool list_batch();
    bool read_pieces(void *out) const;
    bool move_batch();
    bool fill_background();
    bool scatter(ElementRun first);

    const Host &host_;
    sds_file *const replica_;
    const bool only_cached_;
    const sds_candidate &candidate_;
    const Conversion &conversion_;
    const int64_t most_; // elements of a batch
    const ReplicaMap map_;
    ElementWalk file_;
    ElementWalk memory_;
    ElementWalk background_walk_;
    ElementRun pending_; // of the file, not listed yet
    PieceList list_;
    char *buffer_;
    Scratch scratch_; // of both
    char *piece_;
    char *background_;
};

int64_t elements_of_batch(const ScatteredRead &read, const Conversion &conversion)
{
    int64_t bytes =
        conversion.from_bytes > conversion.to_bytes ? conversion.from_bytes : conversion.to_bytes;
    if (conversion.needs_background) bytes += conversion.to_bytes;
    const int64_t most = most_piece_bytes();
    const int64_t n = bytes < most ? most / bytes : 1;
    return n < read.n_elements ? n : read.n_elements;
}

ScatteredTransfer::ScatteredTransfer(const Host &host, sds_file *file, bool only_cached,
                                     const sds_table_dataset &dataset,
                                     const sds_candidate &candidate, const ScatteredRead &read,
                                     const Conversion &conversion, void *buffer)
    : host_(host), replica_(file), only_cached_(only_cached), candidate_(candidate),
      conversion_(conversion), most_(elements_of_batch(read, conversion)),
      map_(replica_map_of(dataset, candidate)), file_(host, read.file_space, read.n_elements),
      memory_(host, read.memory_space, read.n_elements),
      background_walk_(host, conversion.needs_background ? read.memory_space : packed,
                       read.n_elements),
      pending_{0, 0}, list_(static_cast<size_t>(most_ < max_pieces ? most_ : max_pieces)),
      buffer_(static_cast<char *>(buffer)), piece_(nullptr), background_(nullptr)
{
}

bool ScatteredTransfer::allocate()
{
    constexpr int64_t alignment = 64;
    const int64_t bytes = conversion_.from_bytes > conversion_.to_bytes ? conversion_.from_bytes
                                                                        : conversion_.to_bytes;
    const int64_t in_piece = (most_ * bytes + alignment - 1) / alignment * alignment;
    const int64_t behind = conversion_.needs_background ? most_ * conversion_.to_bytes : 0;
    if (!list_.allocate() || !scratch_.allocate(in_piece + behind)) return false;
    piece_ = scratch_.bytes();
    if (behind > 0) background_ = piece_ + in_piece;
    return true;
}

// List the next elements, as many as a batch holds.
bool ScatteredTransfer::list_batch()
{
    list_.clear();
    while (list_.n_elements() < most_) {
        if (pending_.length == 0 && !file_.next(file_.n_left(), pending_)) break;
        const int64_t room = most_ - list_.n_elements();
        const int64_t n =
            list_.add(map_, pending_.offset, pending_.length < room ? pending_.length : room);
        if (n == 0) break;
        pending_.offset += n;
        pending_.length -= n;
    }
    list_.sort();
    list_.to_bytes(candidate_.data_offset_bytes, conversion_.from_bytes);
    return list_.n_elements() > 0;
}

bool ScatteredTransfer::read_pieces(void *out) const
{
    sds_read_options options = {};
    options.max_memory_bytes = max_engine_bytes;
    options.only_cached = only_cached_;
    return sds_read_pieces(replica_, list_.n(), list_.pieces(), &options, out, nullptr) == SDS_OK;
}

// What lies where the batch will go, packed.
bool ScatteredTransfer::fill_background()
{
    const int64_t bytes = conversion_.to_bytes;
    ElementRun run;
    for (int64_t n = 0; n < list_.n_elements(); n += run.length) {
        if (!background_walk_.next(list_.n_elements() - n, run)) return false;
        copy_run(background_ + n * bytes, buffer_ + run.offset * bytes, run.length, bytes);
    }
    return true;
}

bool ScatteredTransfer::scatter(ElementRun run)
{
    const int64_t bytes = conversion_.to_bytes;
    for (int64_t n = 0;;) {
        copy_run(buffer_ + run.offset * bytes, piece_ + n * bytes, run.length, bytes);
        n += run.length;
        if (n == list_.n_elements()) return true;
        if (!memory_.next(list_.n_elements() - n, run)) return false;
    }
}

bool ScatteredTransfer::move_batch()
{
    ElementRun run;
    if (!memory_.next(list_.n_elements(), run)) return false;
    if (conversion_.from == 0 && run.length == list_.n_elements())
        return read_pieces(buffer_ + run.offset * conversion_.to_bytes);
    return (!background_ || fill_background()) && read_pieces(piece_) &&
           convert(host_, conversion_, list_.n_elements(), piece_, background_) && scatter(run);
}

bool ScatteredTransfer::run()
{
    if (!allocate()) return false;
    while (list_batch())
        if (!move_batch()) return false;
    return file_.n_left() == 0 && pending_.length == 0 && memory_.n_left() == 0;
}

// Whether HDF5 reads what is selected, and the box around it. Its own check lets points go one step
// too far (2.0).
bool find_box(const Host &host, hid_t space, int64_t low[], int64_t high[])
{
    hsize_t extent[SDS_MAX_RANK], first[SDS_MAX_RANK], last[SDS_MAX_RANK];
    if (host.hdf5.H5Sselect_valid(space) <= 0) return false;
    const int rank = host.hdf5.H5Sget_simple_extent_dims(space, extent, nullptr);
    if (rank < 0 || (rank > 0 && host.hdf5.H5Sget_select_bounds(space, first, last) < 0))
        return false;
    for (int axis = 0; axis < rank; axis++) {
        if (last[axis] >= extent[axis]) return false;
        low[axis] = static_cast<int64_t>(first[axis]);
        high[axis] = static_cast<int64_t>(last[axis]);
    }
    return true;
}

// Whether the space is known to select what it describes, not moved by an offset.
bool is_unmoved(const Host &host, hid_t space, int64_t rank, const int64_t low[])
{
    hsize_t start[SDS_MAX_RANK], stride[SDS_MAX_RANK], count[SDS_MAX_RANK], block[SDS_MAX_RANK];
    const int type = host.hdf5.H5Sget_select_type(space);
    if (type == all) return true;
    if (type != hyperslabs || host.hdf5.H5Sis_regular_hyperslab(space) <= 0 ||
        host.hdf5.H5Sget_regular_hyperslab(space, start, stride, count, block) < 0)
        return false;
    for (int axis = 0; axis < rank; axis++)
        if (static_cast<int64_t>(start[axis]) != low[axis]) return false;
    return true;
}

// HDF5 does without the axes of a memory space that has more or fewer than the file, where both
// selections have the same shape, and forgets (2.0) how far those axes are moved.
bool is_where_hdf5_writes(const Host &host, hid_t file_space, int32_t file_rank, hid_t memory_space,
                          const int64_t low[])
{
    const int rank = host.hdf5.H5Sget_simple_extent_ndims(memory_space);
    if (rank == file_rank || is_unmoved(host, memory_space, rank, low)) return true;
    return file_space != H5S_ALL && host.hdf5.H5Sselect_shape_same &&
           host.hdf5.H5Sselect_shape_same(memory_space, file_space) == 0;
}

bool fits(const Host &host, hid_t file_space, const Selection &selection, hid_t memory_space)
{
    int64_t low[SDS_MAX_RANK], high[SDS_MAX_RANK];
    return memory_space > last_special_space && find_box(host, memory_space, low, high) &&
           host.hdf5.H5Sget_select_npoints(memory_space) == selection.n_elements &&
           is_where_hdf5_writes(host, file_space, selection.slab.rank, memory_space, low);
}

} // namespace

bool describe_scattered(const Host &host, hid_t file_space, hid_t memory_space,
                        const Selection &selection, ScatteredRead &out)
{
    SilenceKeeper silence(host); // what is wrong is HDF5's to say
    ErrorStackKeeper keep(host);
    out.file_space = file_space;
    out.memory_space = memory_space;
    out.n_elements = selection.n_elements;
    out.kind = selection.kind;
    if (file_space == H5S_ALL) {
        for (int32_t axis = 0; axis < selection.slab.rank; axis++) {
            out.low[axis] = 0;
            out.high[axis] = selection.slab.count[axis] - 1;
        }
    } else if (!find_box(host, file_space, out.low, out.high)) {
        return false;
    }
    if (memory_space == space_block) {
        out.memory_space = packed;
        return true;
    }
    if (memory_space == H5S_ALL) out.memory_space = file_space; // each has its place as there
    return memory_space == H5S_ALL || fits(host, file_space, selection, memory_space);
}

bool writes_once(const Host &host, const ScatteredRead &read)
{
    if (read.memory_space == packed) return true;
    SilenceKeeper silence(host);
    ErrorStackKeeper keep(host);
    return host.hdf5.H5Sget_select_type(read.memory_space) != points ||
           are_distinct(host, read.memory_space, read.n_elements);
}

bool transfer_scattered(const Host &host, sds_file *file, bool only_cached,
                        const sds_table_dataset &dataset, const sds_candidate &candidate,
                        const ScatteredRead &read, const Conversion &conversion, void *buffer)
{
    SilenceKeeper silence(host);
    ErrorStackKeeper keep(host);
    ScatteredTransfer transfer(host, file, only_cached, dataset, candidate, read, conversion,
                               buffer);
    return transfer.run();
}

} // namespace sds::vol
