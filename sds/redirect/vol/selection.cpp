#include "selection.h"

#include <string.h>

namespace sds::vol
{
namespace
{

// H5S_sel_type
constexpr int select_none = 0;
constexpr int select_points = 1;
constexpr int select_hyperslabs = 2;
constexpr int select_all = 3;

// Identifiers up to here are not dataspaces: H5S_ALL, H5S_BLOCK, H5S_PLIST.
constexpr hid_t last_special_space = 2;

int64_t n_selected(const sds_hyperslab &slab)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < slab.rank; axis++)
        n *= slab.count[axis] * slab.block[axis];
    return n;
}

bool read_regular(const Functions &hdf5, hid_t space, sds_hyperslab &slab)
{
    hsize_t start[SDS_MAX_RANK], stride[SDS_MAX_RANK], count[SDS_MAX_RANK], block[SDS_MAX_RANK];
    if (hdf5.H5Sis_regular_hyperslab(space) <= 0 ||
        hdf5.H5Sget_regular_hyperslab(space, start, stride, count, block) < 0)
        return false;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        slab.start[axis] = static_cast<int64_t>(start[axis]);
        slab.stride[axis] = static_cast<int64_t>(stride[axis]);
        slab.count[axis] = static_cast<int64_t>(count[axis]);
        slab.block[axis] = static_cast<int64_t>(block[axis]);
    }
    return true;
}

void read_bounds(const Functions &hdf5, hid_t space, sds_hyperslab &slab)
{
    hsize_t low[SDS_MAX_RANK], high[SDS_MAX_RANK];
    if (hdf5.H5Sget_select_bounds(space, low, high) < 0) return;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        slab.start[axis] = static_cast<int64_t>(low[axis]);
        slab.count[axis] = static_cast<int64_t>(high[axis] - low[axis] + 1);
    }
}

} // namespace

Selection whole(int32_t rank, const int64_t extent[])
{
    Selection selection;
    selection.kind = SDS_SELECT_ALL;
    selection.slab.rank = rank;
    for (int32_t axis = 0; axis < rank; axis++) {
        selection.slab.start[axis] = 0;
        selection.slab.stride[axis] = selection.slab.block[axis] = 1;
        selection.slab.count[axis] = extent[axis];
    }
    selection.n_elements = n_selected(selection.slab);
    return selection;
}

Selection selection_of(const Host &host, hid_t file_space, int32_t rank, const int64_t extent[])
{
    const Functions &hdf5 = host.hdf5;
    Selection selection = whole(rank, extent);
    if (file_space == H5S_ALL) return selection;
    selection.kind = SDS_SELECT_IRREGULAR;
    // A selection that lies in the transfer property list is known by its bounds alone.
    if (file_space <= last_special_space) return selection;
    if (hdf5.H5Sget_simple_extent_ndims(file_space) != rank) return selection;
    switch (hdf5.H5Sget_select_type(file_space)) {
    case select_all:
        selection.kind = SDS_SELECT_ALL;
        return selection;
    case select_none:
        selection.kind = SDS_SELECT_NONE;
        memset(selection.slab.count, 0, sizeof selection.slab.count);
        selection.n_elements = 0;
        return selection;
    case select_hyperslabs:
        if (read_regular(hdf5, file_space, selection.slab)) {
            selection.kind = SDS_SELECT_HYPERSLAB;
            selection.n_elements = n_selected(selection.slab);
            return selection;
        }
        break;
    case select_points:
        selection.kind = SDS_SELECT_POINTS;
        break;
    default:
        return selection;
    }
    read_bounds(hdf5, file_space, selection.slab);
    selection.n_elements = static_cast<int64_t>(hdf5.H5Sget_select_npoints(file_space));
    return selection;
}

bool is_where_it_says(const Host &host, hid_t space, const Selection &selection)
{
    if (selection.kind != SDS_SELECT_HYPERSLAB) return true; // an offset does not move all
    hsize_t low[SDS_MAX_RANK], high[SDS_MAX_RANK];
    if (host.hdf5.H5Sget_select_bounds(space, low, high) < 0) return false;
    for (int32_t axis = 0; axis < selection.slab.rank; axis++)
        if (static_cast<int64_t>(low[axis]) != selection.slab.start[axis]) return false;
    return true;
}

} // namespace sds::vol
