#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <vector>

#include "binding.h"
#include "sds/choose.h"
#include "sds/geometry.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;
using Int64Array = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Points = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Expanding more runs than this is a mistake: 1 GiB of offsets and lengths.
constexpr int64_t max_expanded_runs = int64_t{1} << 26;

struct Selection {
    sds_array array;
    sds_hyperslab slab;
};

void copy_axes(const Axes &from, int64_t into[])
{
    std::memcpy(into, from.data(), from.size() * sizeof(int64_t));
}

Selection selection_of(const Axes &extent, int64_t element_bytes, int64_t offset_bytes,
                       const Axes &start, const Axes &stride, const Axes &count, const Axes &block)
{
    const size_t rank = extent.size();
    if (rank > SDS_MAX_RANK || start.size() != rank || stride.size() != rank ||
        count.size() != rank || block.size() != rank)
        check(SDS_EINVAL, "rank of the selection");
    Selection selection = {};
    selection.array.rank = selection.slab.rank = static_cast<int32_t>(rank);
    selection.array.element_bytes = element_bytes;
    selection.array.offset_bytes = offset_bytes;
    copy_axes(extent, selection.array.extent);
    copy_axes(start, selection.slab.start);
    copy_axes(stride, selection.slab.stride);
    copy_axes(count, selection.slab.count);
    copy_axes(block, selection.slab.block);
    return selection;
}

sds_runs runs_of(const Selection &selection)
{
    sds_runs runs;
    check(sds_runs_of(&selection.array, &selection.slab, &runs), "selection");
    return runs;
}

nb::tuple runs(const Axes &extent, int64_t element_bytes, int64_t offset_bytes, const Axes &start,
               const Axes &stride, const Axes &count, const Axes &block)
{
    const sds_runs found =
        runs_of(selection_of(extent, element_bytes, offset_bytes, start, stride, count, block));
    nb::list counts, strides;
    for (int32_t k = 0; k < found.n_levels; k++) {
        counts.append(found.level[k].count);
        strides.append(found.level[k].stride_bytes);
    }
    return nb::make_tuple(found.first_offset, found.run_bytes, nb::tuple(counts),
                          nb::tuple(strides));
}

bool is_one_run(const Axes &extent, const Axes &start, const Axes &stride, const Axes &count,
                const Axes &block)
{
    const Selection found = selection_of(extent, 1, 0, start, stride, count, block);
    return sds_is_one_run(found.array.extent, &found.slab) != 0;
}

// A NumPy array that owns its values.
nb::object array_of(std::vector<int64_t> values)
{
    auto *kept = new std::vector<int64_t>(std::move(values));
    nb::capsule owner(kept,
                      [](void *p) noexcept { delete static_cast<std::vector<int64_t> *>(p); });
    return nb::cast(nb::ndarray<nb::numpy, int64_t>(kept->data(), {kept->size()}, owner));
}

nb::tuple extents(const Axes &extent, int64_t element_bytes, int64_t offset_bytes,
                  const Axes &start, const Axes &stride, const Axes &count, const Axes &block)
{
    const sds_runs found =
        runs_of(selection_of(extent, element_bytes, offset_bytes, start, stride, count, block));
    const int64_t n = sds_runs_count(&found);
    if (n > max_expanded_runs) check(SDS_ELIMIT, "more than 2**26 runs to expand");
    std::vector<int64_t> offsets, lengths;
    offsets.reserve(static_cast<size_t>(n));
    lengths.reserve(static_cast<size_t>(n));
    sds_run_cursor cursor;
    sds_run_cursor_init(&cursor, &found);
    sds_extent run;
    while (sds_run_cursor_next(&cursor, &run)) {
        offsets.push_back(run.offset);
        lengths.push_back(run.length);
    }
    return nb::make_tuple(array_of(std::move(offsets)), array_of(std::move(lengths)));
}

// The index of the element at some coordinates, -1: there is none. Negative ones count from the
// end.
int64_t element_at(const int64_t point[], const Axes &extent)
{
    int64_t element = 0;
    for (size_t axis = 0; axis < extent.size(); axis++) {
        const int64_t at = point[axis] < 0 ? point[axis] + extent[axis] : point[axis];
        if (at < 0 || at >= extent[axis]) return -1;
        element = element * extent[axis] + at;
    }
    return element;
}

// Indices of elements, and which point is the first outside; the number of points: none is.
nb::tuple elements_at(const Points &points, const Axes &extent)
{
    if (points.shape(1) != extent.size()) check(SDS_EINVAL, "rank of the points");
    const size_t n = points.shape(0);
    std::vector<int64_t> elements(n);
    size_t done = 0;
    {
        nb::gil_scoped_release released;
        for (; done < n; done++) {
            elements[done] = element_at(points.data() + done * extent.size(), extent);
            if (elements[done] < 0) break;
        }
    }
    return nb::make_tuple(array_of(std::move(elements)), done);
}

nb::tuple bounds_tuple(const sds_bounds &bounds)
{
    return nb::make_tuple(bounds.low, bounds.high);
}

nb::dict features_dict(const sds_features &features)
{
    nb::dict result;
    result["runs"] = features.runs;
    result["bytes_useful"] = features.bytes_useful;
    result["block_depth"] = bounds_tuple(features.block_depth);
    result["block_gap_count"] = bounds_tuple(features.block_gap_count);
    result["block_gap_distance"] = bounds_tuple(features.block_gap_distance);
    result["bytes_touched"] = bounds_tuple(features.bytes_touched);
    result["osts_touched"] = bounds_tuple(features.osts_touched);
    result["disks_touched"] = bounds_tuple(features.disks_touched);
    result["sieve"] =
        nb::make_tuple(features.sieve.requests, features.sieve.jumps, features.sieve.bytes);
    result["exact"] = features.exact != 0;
    return result;
}

nb::dict features(const Axes &extent, int64_t element_bytes, int64_t offset_bytes,
                  const Axes &start, const Axes &stride, const Axes &count, const Axes &block,
                  int64_t stripe_bytes, int64_t stripe_count, int64_t unit_bytes,
                  int64_t data_disks, int64_t min_request_bytes, int64_t budget_ns)
{
    const Selection selection =
        selection_of(extent, element_bytes, offset_bytes, start, stride, count, block);
    const sds_runs found = runs_of(selection);
    const sds_striping striping = {stripe_bytes, stripe_count};
    const sds_raid raid = {unit_bytes, data_disks, min_request_bytes};
    sds_features result;
    int64_t gap;
    sds_status status;
    {
        nb::gil_scoped_release release;
        status = sds_features_of_runs(&found, &striping, &raid, budget_ns, &result);
    }
    check(status, "striping and RAID");
    check(sds_block_gap_paper(&selection.array, &selection.slab, &gap), "selection");
    nb::dict dict = features_dict(result);
    dict["block_gap_paper"] = gap;
    return dict;
}

nb::dict features_of_extents(const Int64Array &offsets, const Int64Array &lengths,
                             int64_t stripe_bytes, int64_t stripe_count, int64_t unit_bytes,
                             int64_t data_disks, int64_t min_request_bytes, int64_t budget_ns)
{
    if (offsets.shape(0) != lengths.shape(0))
        check(SDS_EINVAL, "offsets and lengths differ in number");
    std::vector<sds_extent> extent(offsets.shape(0));
    for (size_t i = 0; i < extent.size(); i++)
        extent[i] = {offsets.data()[i], lengths.data()[i]};
    const sds_striping striping = {stripe_bytes, stripe_count};
    const sds_raid raid = {unit_bytes, data_disks, min_request_bytes};
    sds_features result;
    sds_status status;
    {
        nb::gil_scoped_release release;
        status = sds_features_of_extents(extent.size(), extent.data(), &striping, &raid, budget_ns,
                                         &result);
    }
    check(status, "extents, striping and RAID");
    return features_dict(result);
}

} // namespace

void bind_geometry(nb::module_ &module)
{
    module.attr("MAX_RANK") = SDS_MAX_RANK;
    module.def("runs", &runs, nb::arg("extent"), nb::arg("element_bytes"), nb::arg("offset_bytes"),
               nb::arg("start"), nb::arg("stride"), nb::arg("count"), nb::arg("block"));
    module.def("is_one_run", &is_one_run, nb::arg("extent"), nb::arg("start"), nb::arg("stride"),
               nb::arg("count"), nb::arg("block"));
    module.def("extents", &extents, nb::arg("extent"), nb::arg("element_bytes"),
               nb::arg("offset_bytes"), nb::arg("start"), nb::arg("stride"), nb::arg("count"),
               nb::arg("block"));
    // noconvert: who passes other numbers knows whether they fit.
    module.def("elements_at", &elements_at, nb::arg("points").noconvert(), nb::arg("extent"));
    module.def("features", &features, nb::arg("extent"), nb::arg("element_bytes"),
               nb::arg("offset_bytes"), nb::arg("start"), nb::arg("stride"), nb::arg("count"),
               nb::arg("block"), nb::arg("stripe_bytes"), nb::arg("stripe_count"),
               nb::arg("unit_bytes"), nb::arg("data_disks"), nb::arg("min_request_bytes"),
               nb::arg("budget_ns"));
    module.def("features_of_extents", &features_of_extents, nb::arg("offsets"), nb::arg("lengths"),
               nb::arg("stripe_bytes"), nb::arg("stripe_count"), nb::arg("unit_bytes"),
               nb::arg("data_disks"), nb::arg("min_request_bytes"), nb::arg("budget_ns"));
}
