#include "table_entry.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <string>
#include <vector>

#include "binding.h"
#include "read_file.h"
#include "sds/choose.h"
#include "sds/permute.h"
#include "sds/tiles.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;

// Bytes from one index to the next on each axis of an array in C order.
void packed_strides(int32_t rank, const int64_t shape[], int64_t element_bytes, int64_t stride[])
{
    for (int32_t axis = rank - 1; axis >= 0; axis--) {
        stride[axis] = element_bytes;
        element_bytes *= shape[axis];
    }
}

// Whether elements of a shape lie one after the other where they are so far apart.
bool is_packed(int32_t rank, const int64_t shape[], const int64_t packed[], const int64_t stride[])
{
    for (int32_t axis = 0; axis < rank; axis++)
        if (shape[axis] > 1 && stride[axis] != packed[axis]) return false;
    return true;
}

sds_array array_of(const sds_table_dataset &dataset)
{
    sds_array array = {};
    array.rank = dataset.rank;
    std::copy_n(dataset.extent, dataset.rank, array.extent);
    array.element_bytes = dataset.element_bytes;
    array.offset_bytes = dataset.data_offset_bytes;
    return array;
}

} // namespace

TableEntry::TableEntry(nb::handle encoded)
{
    const Buffer view(encoded);
    sds_table *opened = nullptr;
    check(sds_table_from_bytes(view.bytes(), view.size(), &opened), "redirect table");
    table_.reset(opened);
    if (sds_table_n_datasets(opened) != 1)
        refuse("an entry is a table of one dataset, not of " +
               std::to_string(sds_table_n_datasets(opened)));
    check(sds_table_dataset_at(opened, 0, &dataset_), "dataset");
}

sds_candidate TableEntry::candidate_at(int32_t i) const
{
    sds_candidate candidate;
    check(sds_table_candidate_at(table_.get(), 0, i, &candidate), "candidate");
    return candidate;
}

void TableEntry::check_selection(const sds_hyperslab &slab) const
{
    const sds_array array = array_of(dataset_);
    sds_runs runs;
    check(sds_runs_of(&array, &slab, &runs), "selection");
}

bool TableEntry::is_plain() const
{
    if (dataset_.storage != SDS_TABLE_CONTIGUOUS) return false;
    for (int32_t i = 0; i < dataset_.n_candidates; i++) {
        const sds_candidate candidate = candidate_at(i);
        if (candidate.storage != SDS_TABLE_CONTIGUOUS ||
            sds_candidate_is_partial(&candidate, &dataset_))
            return false;
    }
    return true;
}

namespace
{

// sds.read is one process, and has the engine read contiguous originals.
sds_choose_given given_of(const sds_table_dataset &dataset)
{
    sds_choose_given given = {};
    given.engine_reads_original = dataset.storage == SDS_TABLE_CONTIGUOUS;
    given.active_only = 1;
    return given;
}

// What a choice may ask for while it is made.
struct Choosing {
    const sds_layouts &layouts;
    const sds_hyperslab &slab;
    const ReadFile *source;
    nb::handle find_file;
    std::exception_ptr error;

    sds_cache probe(int32_t choice) const
    {
        sds_array array;
        sds_hyperslab stored = slab;
        sds_runs runs;
        nb::object opened;
        const ReadFile *file = source;
        if (choice < 0) {
            array = array_of(layouts.dataset);
        } else {
            if (find_file.is_none()) return SDS_CACHE_UNKNOWN;
            opened = find_file(choice);
            file = opened.is_none() ? nullptr : nb::cast<const ReadFile *>(opened);
            sds_candidate candidate;
            sds_layouts_candidate(&layouts, choice, &candidate);
            sds_candidate_array(&candidate, &layouts.dataset, &array);
            check(sds_candidate_slab(&candidate, &slab, &stored), "selection");
        }
        if (file == nullptr) return SDS_CACHE_UNKNOWN;
        check(sds_runs_of(&array, &stored, &runs), "selection");
        return sds_probe_runs(file->file(), &runs);
    }

    static sds_cache probe(void *context, int32_t choice)
    {
        auto &self = *static_cast<Choosing *>(context);
        try {
            return self.probe(choice);
        } catch (...) {
            self.error = std::current_exception();
            return SDS_CACHE_UNKNOWN;
        }
    }

    static void plan_given(void *context, sds_plan_given *out)
    {
        const ReadFile *source = static_cast<const Choosing *>(context)->source;
        if (source != nullptr) sds_file_given(source->file(), out);
    }
};

} // namespace

sds_layouts TableEntry::layouts() const
{
    sds_layouts layouts = {};
    layouts.dataset = dataset_;
    layouts.table = table_.get();
    return layouts;
}

std::vector<double> TableEntry::seconds(const sds_hyperslab &slab) const
{
    const sds_layouts all = layouts();
    const sds_choose_given given = given_of(dataset_);
    std::vector<sds_read_cost> candidates(static_cast<size_t>(dataset_.n_candidates) + 1);
    sds_read_costs costs = {};
    costs.candidate = candidates.data();
    sds_choose(&all, &slab, &given, &costs);
    std::vector<double> found = {sds_cold_s(&costs.by_hdf5), sds_cold_s(&costs.by_engine)};
    for (size_t i = 0; i + 1 < candidates.size(); i++)
        found.push_back(sds_cold_s(&candidates[i]));
    return found;
}

TableChoice TableEntry::choose(const sds_hyperslab &slab, const ReadFile *source,
                               nb::handle find_file) const
{
    const sds_layouts all = layouts();
    Choosing choosing = {all, slab, source, find_file, nullptr};
    sds_choose_given given = given_of(dataset_);
    given.parameters = source == nullptr ? nullptr : source->parameters();
    given.plan_given = Choosing::plan_given;
    if (source != nullptr || !find_file.is_none()) given.probe = Choosing::probe;
    given.context = &choosing;
    sds_read_costs costs = {};
    const int32_t choice = sds_choose(&all, &slab, &given, &costs);
    if (choosing.error) std::rethrow_exception(choosing.error);
    const int32_t candidate = choice < 0 ? original : choice; // whoever reads the original
    return {candidate, sds_choice_uses(candidate, costs.hangs_on)};
}

StoredRead TableEntry::stored_read(int32_t number, const sds_hyperslab &slab) const
{
    const sds_candidate candidate = candidate_at(number);
    if (candidate.storage != SDS_TABLE_CONTIGUOUS || candidate.tiles.n > 0 ||
        !sds_candidate_holds(&candidate, &slab))
        refuse("no contiguous candidate of number " + std::to_string(number) +
               " holds what is selected");
    sds_array array;
    sds_hyperslab within;
    sds_candidate_array(&candidate, &dataset_, &array);
    check(sds_candidate_slab(&candidate, &slab, &within), "selection");
    StoredRead read;
    check(sds_runs_of(&array, &within, &read.runs), "selection");
    int64_t shape[SDS_MAX_RANK];
    sds_hyperslab_shape(&within, shape);
    read.keeps_order = sds_candidate_keeps_order(&candidate, shape);
    read.index_bytes.resize(static_cast<size_t>(array.rank));
    read.base_offset = read.runs.first_offset;
    int64_t bytes_of_one = array.element_bytes;
    for (int32_t axis = array.rank - 1; axis >= 0; axis--) {
        const int32_t of_source = candidate.order[axis];
        read.index_bytes[static_cast<size_t>(of_source)] = bytes_of_one;
        read.base_offset -= slab.start[of_source] * bytes_of_one;
        bytes_of_one *= array.extent[axis];
    }
    return read;
}

std::vector<int64_t> TableEntry::pieces(const sds_hyperslab &slab) const
{
    std::vector<int64_t> n(static_cast<size_t>(dataset_.n_candidates));
    for (int32_t i = 0; i < dataset_.n_candidates; i++) {
        const sds_candidate candidate = candidate_at(i);
        if (!sds_candidate_holds(&candidate, &slab)) continue;
        n[static_cast<size_t>(i)] =
            candidate.tiles.n > 0 ? sds_tile_pieces(&candidate, &slab, nullptr) : 1;
    }
    return n;
}

size_t TableEntry::announced_bytes(int32_t number) const
{
    return static_cast<size_t>(candidate_at(number).tiles.n_segments);
}

sds_status TableEntry::read_tiles(int32_t number, const sds_hyperslab &slab, sds_file *file,
                                  uint8_t announced[], void *out) const
{
    const sds_candidate candidate = candidate_at(number);
    const int32_t rank = slab.rank;
    int64_t whole[SDS_MAX_RANK], stride[SDS_MAX_RANK], of_replica[SDS_MAX_RANK];
    sds_hyperslab_shape(&slab, whole);
    packed_strides(rank, whole, dataset_.element_bytes, stride);
    for (int32_t axis = 0; axis < rank; axis++)
        of_replica[axis] = stride[candidate.order[axis]];
    sds_announce_pieces(file, &candidate, &dataset_, &slab);
    std::vector<uint8_t> room;
    sds_tile_walk walk;
    sds_tile_piece piece;
    sds_tile_walk_init(&walk, &candidate, &slab);
    while (sds_tile_walk_next(&walk, &piece)) {
        if (piece.place < 0) return SDS_EBOUNDS;
        sds_array tile;
        sds_runs runs;
        int64_t shape[SDS_MAX_RANK], packed[SDS_MAX_RANK];
        sds_tile_array(&candidate, &dataset_, piece.place, &tile);
        sds_status status = sds_runs_of(&tile, &piece.slab, &runs);
        if (status != SDS_OK) return status;
        auto *to = static_cast<uint8_t *>(out);
        for (int32_t axis = 0; axis < rank; axis++)
            to += piece.at[axis] * stride[axis];
        sds_hyperslab_shape(&piece.slab, shape);
        packed_strides(rank, shape, dataset_.element_bytes, packed);
        const bool in_place = is_packed(rank, shape, packed, of_replica);
        if (!in_place) room.resize(static_cast<size_t>(sds_runs_bytes(&runs)));
        const int is_due = sds_segment_is_due(file, &candidate, &dataset_, &piece, announced);
        status = sds_read_runs(file, &runs, nullptr, in_place ? to : room.data(), nullptr);
        if (status != SDS_OK) return status;
        if (is_due) sds_announce_segment(file, &candidate, &dataset_, &piece, announced);
        if (in_place) continue;
        status = sds_copy_strided(rank, shape, packed, of_replica,
                                  static_cast<size_t>(dataset_.element_bytes), room.data(), to);
        if (status != SDS_OK) return status;
    }
    return SDS_OK;
}

namespace
{

sds_hyperslab slab_of(const TableEntry &entry, const Axes &start, const Axes &stride,
                      const Axes &count, const Axes &block)
{
    const auto rank = static_cast<size_t>(entry.rank());
    if (start.size() != rank || stride.size() != rank || count.size() != rank ||
        block.size() != rank)
        check(SDS_EINVAL, "rank of the selection");
    sds_hyperslab slab = {};
    slab.rank = entry.rank();
    std::copy(start.begin(), start.end(), slab.start);
    std::copy(stride.begin(), stride.end(), slab.stride);
    std::copy(count.begin(), count.end(), slab.count);
    std::copy(block.begin(), block.end(), slab.block);
    return slab;
}

sds_hyperslab checked_slab_of(const TableEntry &entry, const Axes &start, const Axes &stride,
                              const Axes &count, const Axes &block)
{
    const sds_hyperslab slab = slab_of(entry, start, stride, count, block);
    entry.check_selection(slab);
    return slab;
}

nb::tuple choose(const TableEntry &entry, const Axes &start, const Axes &stride, const Axes &count,
                 const Axes &block, const ReadFile *source, nb::handle find_file)
{
    const TableChoice found =
        entry.choose(checked_slab_of(entry, start, stride, count, block), source, find_file);
    const bool is_original = found.candidate == TableEntry::original;
    return nb::make_tuple(is_original ? nb::none() : nb::cast(found.candidate), found.n_uses);
}

std::vector<double> seconds(const TableEntry &entry, const Axes &start, const Axes &stride,
                            const Axes &count, const Axes &block)
{
    return entry.seconds(checked_slab_of(entry, start, stride, count, block));
}

nb::tuple stored_read(const TableEntry &entry, int32_t candidate, const Axes &start,
                      const Axes &stride, const Axes &count, const Axes &block)
{
    const StoredRead read =
        entry.stored_read(candidate, slab_of(entry, start, stride, count, block));
    nb::list index_bytes, counts, strides;
    for (const int64_t n_bytes : read.index_bytes)
        index_bytes.append(n_bytes);
    for (int32_t k = 0; k < read.runs.n_levels; k++) {
        counts.append(read.runs.level[k].count);
        strides.append(read.runs.level[k].stride_bytes);
    }
    return nb::make_tuple(read.base_offset, nb::tuple(index_bytes), read.runs.run_bytes,
                          nb::tuple(counts), nb::tuple(strides), read.keeps_order);
}

nb::tuple pieces(const TableEntry &entry, const Axes &start, const Axes &stride, const Axes &count,
                 const Axes &block)
{
    nb::list found;
    for (const int64_t n : entry.pieces(checked_slab_of(entry, start, stride, count, block)))
        found.append(n);
    return nb::tuple(found);
}

void read_tiles(const TableEntry &entry, int32_t candidate, const Axes &start, const Axes &stride,
                const Axes &count, const Axes &block, const ReadFile &file, nb::object announced,
                nb::object out)
{
    const sds_hyperslab slab = checked_slab_of(entry, start, stride, count, block);
    const size_t n_announced = entry.announced_bytes(candidate);
    if (n_announced == 0) refuse("candidate " + std::to_string(candidate) + " has no tiles");
    if (entry.pieces(slab)[static_cast<size_t>(candidate)] == 0)
        refuse("candidate " + std::to_string(candidate) + " does not hold what is selected");
    const Buffer counts(announced, true), into(out, true);
    int64_t n_bytes = entry.element_bytes();
    for (int32_t axis = 0; axis < slab.rank; axis++)
        n_bytes *= slab.count[axis] * slab.block[axis];
    if (counts.size() != n_announced || into.size() != static_cast<size_t>(n_bytes))
        refuse("announced has " + std::to_string(counts.size()) + " bytes and out " +
               std::to_string(into.size()) + ", not " + std::to_string(n_announced) + " and " +
               std::to_string(n_bytes));
    sds_status status;
    int saved_errno;
    {
        const nb::gil_scoped_release released;
        status = entry.read_tiles(candidate, slab, file.file(),
                                  static_cast<uint8_t *>(counts.bytes()), into.bytes());
        saved_errno = errno;
    }
    errno = saved_errno;
    check(status, "tiles");
}

} // namespace

void bind_table_entry(nb::module_ &module)
{
    nb::class_<TableEntry>(module, "TableEntry")
        .def(nb::init<nb::handle>(), nb::arg("encoded"))
        .def_prop_ro("is_plain", &TableEntry::is_plain)
        .def("choose", &choose, nb::arg("start"), nb::arg("stride"), nb::arg("count"),
             nb::arg("block"), nb::arg("source").none(), nb::arg("find_file").none())
        .def("seconds", &seconds, nb::arg("start"), nb::arg("stride"), nb::arg("count"),
             nb::arg("block"))
        .def("pieces", &pieces, nb::arg("start"), nb::arg("stride"), nb::arg("count"),
             nb::arg("block"))
        .def("announced_bytes", &TableEntry::announced_bytes, nb::arg("candidate"))
        .def("read_tiles", &read_tiles, nb::arg("candidate"), nb::arg("start"), nb::arg("stride"),
             nb::arg("count"), nb::arg("block"), nb::arg("file"), nb::arg("announced"),
             nb::arg("out"))
        .def("stored_read", &stored_read, nb::arg("candidate"), nb::arg("start"), nb::arg("stride"),
             nb::arg("count"), nb::arg("block"));
}
