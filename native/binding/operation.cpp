#include "sds/operation.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "binding.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;
using List = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PerProcess = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

nb::dict dict_of(const sds_operation_features &found)
{
    nb::dict result;
    result["processes"] = found.processes;
    result["block_depth"] = found.block_depth;
    result["block_gap_count"] = found.block_gap_count;
    result["block_gap_distance"] = found.block_gap_distance;
    if (found.block_gap_paper < 0)
        result["block_gap_paper"] = nb::none();
    else
        result["block_gap_paper"] = found.block_gap_paper;
    result["osts_touched"] = found.osts_touched;
    result["disks_touched"] = found.disks_touched;
    result["runs"] = found.runs;
    result["runs_most"] = found.runs_most;
    result["segments_most"] = found.segments_most;
    result["bytes_useful"] = found.bytes_useful;
    result["bytes_touched"] = found.bytes_touched;
    result["bytes_touched_most"] = found.bytes_touched_most;
    result["ost_bytes_touched"] = found.ost_bytes_touched;
    result["disk_blocks"] = found.disk_blocks;
    result["disk_gap_count"] = found.disk_gap_count;
    result["disk_gap_distance"] = found.disk_gap_distance;
    result["disk_segments"] = found.disk_segments;
    result["disk_processes"] = found.disk_processes;
    return result;
}

sds_io_mode mode_of(bool collective)
{
    return collective ? SDS_IO_COLLECTIVE : SDS_IO_INDEPENDENT;
}

void check_operation(sds_status status)
{
    check(status, status == SDS_ELIMIT ? "time for an operation, or number of its disks"
                                       : "selections of an operation, striping and RAID");
}

// A file's components from rows of (begin, end, stripe size, stripe count), and the OSTs of all
// objects, one component after the other; none: they are not named.
struct Storage {
    std::vector<sds_component> components;
    sds_storage storage;

    Storage(const PerProcess &rows, const List &osts, int64_t unit_bytes, int64_t data_disks,
            int64_t min_request_bytes)
        : storage{}
    {
        if (rows.shape(0) == 0 || rows.shape(1) != 4) check(SDS_EINVAL, "components of a file");
        size_t named = 0;
        for (size_t i = 0; i < rows.shape(0); i++) {
            const int64_t *row = rows.data() + 4 * i;
            const int64_t *of = nullptr;
            if (osts.shape(0) > 0) {
                const auto count = static_cast<size_t>(row[3]);
                if (row[3] < 0 || count > osts.shape(0) - named)
                    check(SDS_EINVAL, "number of OSTs");
                of = osts.data() + named;
                named += count;
            }
            components.push_back({row[0], row[1], {row[2], row[3]}, of});
        }
        for (size_t i = 0; i < osts.shape(0); i++)
            storage.n_osts = std::max(storage.n_osts, osts.data()[i] + 1);
        storage.n_components = components.size();
        storage.components = components.data();
        storage.raid = {unit_bytes, data_disks, min_request_bytes};
    }
    Storage(const Storage &) = delete;
    Storage &operator=(const Storage &) = delete;
};

struct Loads {
    sds_ost_loads loads{};
    Loads() = default;
    Loads(const Loads &) = delete;
    Loads &operator=(const Loads &) = delete;
    ~Loads() { sds_ost_loads_free(&loads); }
};

// A NumPy array with a copy of values.
nb::object array_of(const int64_t *values, size_t rows, size_t columns)
{
    auto *kept = new std::vector<int64_t>(values, values + rows * columns);
    nb::capsule owner(kept,
                      [](void *p) noexcept { delete static_cast<std::vector<int64_t> *>(p); });
    return nb::cast(nb::ndarray<nb::numpy, int64_t>(kept->data(), {rows, columns}, owner));
}

nb::dict loads_dict(const sds_ost_loads &loads)
{
    const auto osts = static_cast<size_t>(loads.n_osts), lanes = static_cast<size_t>(loads.n_lanes);
    nb::dict result;
    result["ost"] = array_of(loads.ost, osts, 1);
    result["bytes"] = array_of(loads.bytes, osts, 1);
    result["blocks"] = array_of(loads.blocks, osts, lanes);
    result["segments"] = array_of(loads.segments, osts, lanes);
    result["processes"] = array_of(loads.processes, osts, lanes);
    return result;
}

nb::tuple operation_of_slabs(const Axes &extent, int64_t element_bytes, int64_t offset_bytes,
                             const PerProcess &start, const PerProcess &stride,
                             const PerProcess &count, const PerProcess &block, bool collective,
                             const PerProcess &components, const List &osts, int64_t unit_bytes,
                             int64_t data_disks, int64_t min_request_bytes, int64_t budget_ns)
{
    const size_t rank = extent.size();
    if (rank > SDS_MAX_RANK) check(SDS_EINVAL, "rank of the array");
    for (const PerProcess *of : {&start, &stride, &count, &block})
        if (of->shape(0) != start.shape(0) || of->shape(1) != rank)
            check(SDS_EINVAL, "shape of starts, strides, counts and blocks");
    sds_array array = {};
    array.rank = static_cast<int32_t>(rank);
    array.element_bytes = element_bytes;
    array.offset_bytes = offset_bytes;
    std::memcpy(array.extent, extent.data(), rank * sizeof(int64_t));
    const sds_slabs slabs = {start.shape(0), array.rank,   start.data(),
                             stride.data(),  count.data(), block.data()};
    const Storage storage(components, osts, unit_bytes, data_disks, min_request_bytes);
    sds_operation_features found;
    Loads loads;
    sds_status status;
    {
        nb::gil_scoped_release release;
        status = sds_operation_of_slabs(&array, &slabs, mode_of(collective), &storage.storage,
                                        budget_ns, &found, &loads.loads);
    }
    check_operation(status);
    return nb::make_tuple(dict_of(found), loads_dict(loads.loads));
}

nb::tuple operation_of_extents(const List &first, const List &offsets, const List &lengths,
                               bool collective, const PerProcess &components, const List &osts,
                               int64_t unit_bytes, int64_t data_disks, int64_t min_request_bytes,
                               int64_t budget_ns)
{
    const size_t n = offsets.shape(0);
    if (lengths.shape(0) != n) check(SDS_EINVAL, "offsets and lengths differ in number");
    if (first.shape(0) < 1 || first.data()[0] != 0 ||
        first.data()[first.shape(0) - 1] != static_cast<int64_t>(n))
        check(SDS_EINVAL, "first extents of the processes");
    for (size_t i = 1; i < first.shape(0); i++)
        if (first.data()[i] < first.data()[i - 1]) check(SDS_EINVAL, "first extents fall");
    std::vector<sds_extent> extents(n);
    for (size_t i = 0; i < n; i++)
        extents[i] = {offsets.data()[i], lengths.data()[i]};
    const sds_process_extents reads = {first.shape(0) - 1, first.data(), extents.data()};
    const Storage storage(components, osts, unit_bytes, data_disks, min_request_bytes);
    sds_operation_features found;
    Loads loads;
    sds_status status;
    {
        nb::gil_scoped_release release;
        status = sds_operation_of_extents(&reads, mode_of(collective), &storage.storage, budget_ns,
                                          &found, &loads.loads);
    }
    check_operation(status);
    return nb::make_tuple(dict_of(found), loads_dict(loads.loads));
}

} // namespace

void bind_operation(nb::module_ &module)
{
    module.def("operation_of_slabs", &operation_of_slabs, nb::arg("extent"),
               nb::arg("element_bytes"), nb::arg("offset_bytes"), nb::arg("start"),
               nb::arg("stride"), nb::arg("count"), nb::arg("block"), nb::arg("collective"),
               nb::arg("components"), nb::arg("osts"), nb::arg("unit_bytes"), nb::arg("data_disks"),
               nb::arg("min_request_bytes"), nb::arg("budget_ns"));
    module.def("operation_of_extents", &operation_of_extents, nb::arg("first"), nb::arg("offsets"),
               nb::arg("lengths"), nb::arg("collective"), nb::arg("components"), nb::arg("osts"),
               nb::arg("unit_bytes"), nb::arg("data_disks"), nb::arg("min_request_bytes"),
               nb::arg("budget_ns"));
}
