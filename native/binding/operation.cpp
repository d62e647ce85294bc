#include "sds/operation.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

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

nb::dict operation_of_slabs(const Axes &extent, int64_t element_bytes, int64_t offset_bytes,
                            const PerProcess &start, const PerProcess &stride,
                            const PerProcess &count, const PerProcess &block, bool collective,
                            int64_t stripe_bytes, int64_t stripe_count, int64_t unit_bytes,
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
    const sds_striping striping = {stripe_bytes, stripe_count};
    const sds_raid raid = {unit_bytes, data_disks, min_request_bytes};
    sds_operation_features found;
    sds_status status;
    {
        nb::gil_scoped_release release;
        status = sds_operation_of_slabs(&array, &slabs, mode_of(collective), &striping, &raid,
                                        budget_ns, &found);
    }
    check_operation(status);
    return dict_of(found);
}

nb::dict operation_of_extents(const List &first, const List &offsets, const List &lengths,
                              bool collective, int64_t stripe_bytes, int64_t stripe_count,
                              int64_t unit_bytes, int64_t data_disks, int64_t min_request_bytes,
                              int64_t budget_ns)
{
    const size_t n = offsets.shape(0);
    if (lengths.shape(0) != n) check(SDS_EINVAL, "offsets and lengths differ in number");
    if (first.shape(0) < 1 || first.data()[0] != 0 ||
        first.data()[first.shape(0) - 1] != static_cast<int64_t>(n))
        check(SDS_EINVAL, "first extents of the processes");
    std::vector<sds_extent> extents(n);
    for (size_t i = 0; i < n; i++)
        extents[i] = {offsets.data()[i], lengths.data()[i]};
    const sds_process_extents reads = {first.shape(0) - 1, first.data(), extents.data()};
    const sds_striping striping = {stripe_bytes, stripe_count};
    const sds_raid raid = {unit_bytes, data_disks, min_request_bytes};
    sds_operation_features found;
    sds_status status;
    {
        nb::gil_scoped_release release;
        status = sds_operation_of_extents(&reads, mode_of(collective), &striping, &raid, budget_ns,
                                          &found);
    }
    check_operation(status);
    return dict_of(found);
}

} // namespace

void bind_operation(nb::module_ &module)
{
    module.def("operation_of_slabs", &operation_of_slabs, nb::arg("extent"),
               nb::arg("element_bytes"), nb::arg("offset_bytes"), nb::arg("start"),
               nb::arg("stride"), nb::arg("count"), nb::arg("block"), nb::arg("collective"),
               nb::arg("stripe_bytes"), nb::arg("stripe_count"), nb::arg("unit_bytes"),
               nb::arg("data_disks"), nb::arg("min_request_bytes"), nb::arg("budget_ns"));
    module.def("operation_of_extents", &operation_of_extents, nb::arg("first"), nb::arg("offsets"),
               nb::arg("lengths"), nb::arg("collective"), nb::arg("stripe_bytes"),
               nb::arg("stripe_count"), nb::arg("unit_bytes"), nb::arg("data_disks"),
               nb::arg("min_request_bytes"), nb::arg("budget_ns"));
}
