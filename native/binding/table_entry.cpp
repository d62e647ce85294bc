#include "table_entry.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "binding.h"
#include "sds/cost.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;

// What a read of an array that is stored contiguously touches.
struct Touched {
    sds_features features;
    int64_t gap_paper;

    Touched(const sds_array &array, const sds_hyperslab &slab, const sds_file_layout &layout,
            int64_t budget_ns)
    {
        sds_runs runs;
        check(sds_runs_of(&array, &slab, &runs), "selection");
        check(sds_features_of_runs(&runs, &layout.striping, &layout.raid, budget_ns, &features),
              "striping and RAID");
        check(sds_block_gap_paper(&array, &slab, &gap_paper), "selection");
    }

    // By one process.
    double seconds(const sds_cost_model &model) const
    {
        const auto n_osts = static_cast<double>(std::max<int64_t>(features.osts_touched.high, 1));
        return sds_cost_predict(&model, &features, gap_paper, 1 / n_osts);
    }
};

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

TableEntry::TableEntry(nb::handle encoded, int64_t budget_ns) : budget_ns_(budget_ns)
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

int32_t TableEntry::cheapest(const sds_hyperslab &slab, std::optional<double> original_s,
                             const std::vector<std::optional<double>> &candidate_s,
                             bool engine_serves_original) const
{
    constexpr int32_t active_permille = 1000;
    std::optional<Touched> of_original;
    if (!original_s) {
        of_original.emplace(array_of(dataset_), slab, dataset_.layout, budget_ns_);
        if (of_original->features.runs <= 1) return original; // no replica reads less
        original_s = of_original->seconds(dataset_.model);
    }
    double best_s = *original_s;
    int32_t best = original;
    for (int32_t i = 0; i < dataset_.n_candidates; i++) {
        const sds_candidate candidate = candidate_at(i);
        if (candidate.shadow_permille < active_permille || candidate.tiles.n > 0 ||
            !sds_candidate_holds(&candidate, &slab))
            continue;
        double seconds;
        if (candidate.storage == SDS_TABLE_CONTIGUOUS) {
            sds_array stored;
            sds_hyperslab within;
            sds_candidate_array(&candidate, &dataset_, &stored);
            check(sds_candidate_slab(&candidate, &slab, &within), "selection");
            seconds =
                Touched(stored, within, candidate.layout, budget_ns_).seconds(candidate.model);
        } else if (static_cast<size_t>(i) < candidate_s.size() && candidate_s[i]) {
            seconds = *candidate_s[i];
        } else {
            continue;
        }
        // The table's model of the original is that of HDF5; the engine may do better than that.
        if (seconds >= best_s || (engine_serves_original && of_original &&
                                  seconds >= of_original->seconds(candidate.model)))
            continue;
        best_s = seconds;
        best = i;
    }
    return best;
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

nb::object cheapest(const TableEntry &entry, const Axes &start, const Axes &stride,
                    const Axes &count, const Axes &block, std::optional<double> original_s,
                    const std::vector<std::optional<double>> &candidate_s,
                    bool engine_serves_original)
{
    const int32_t found = entry.cheapest(slab_of(entry, start, stride, count, block), original_s,
                                         candidate_s, engine_serves_original);
    return found == TableEntry::original ? nb::none() : nb::cast(found);
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

} // namespace

void bind_table_entry(nb::module_ &module)
{
    nb::class_<TableEntry>(module, "TableEntry")
        .def(nb::init<nb::handle, int64_t>(), nb::arg("encoded"), nb::arg("budget_ns"))
        .def_prop_ro("is_plain", &TableEntry::is_plain)
        .def("cheapest", &cheapest, nb::arg("start"), nb::arg("stride"), nb::arg("count"),
             nb::arg("block"), nb::arg("original_s").none(), nb::arg("candidate_s"),
             nb::arg("engine_serves_original"))
        .def("stored_read", &stored_read, nb::arg("candidate"), nb::arg("start"), nb::arg("stride"),
             nb::arg("count"), nb::arg("block"));
}
