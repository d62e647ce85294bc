#include "selection.h"

#include <string.h>

#include "branch.h"

namespace sds::vol
{
namespace
{

// H5S_sel_type
constexpr int select_unknown = -1;
constexpr int select_none = 0;
constexpr int select_points = 1;
constexpr int select_hyperslabs = 2;
constexpr int select_all = 3;

constexpr int64_t unwritten = -1;

// A selection that lies in the transfer property list (H5S_BLOCK, H5S_PLIST) is not known.
int type_of(const Functions &hdf5, hid_t space)
{
    return space <= last_special_space ? select_unknown : hdf5.H5Sget_select_type(space);
}

int64_t n_selected(const sds_hyperslab &slab)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < slab.rank; axis++)
        n *= slab.count[axis] * slab.block[axis];
    return n;
}

// HDF5 writes as many axes as a space has: into what these mark, unless it has another rank.
void mark_rank(int64_t axes[], int32_t rank)
{
    if (rank > 0) axes[rank - 1] = unwritten;
    if (rank < SDS_MAX_RANK) axes[rank] = unwritten;
}
bool is_of_rank(const int64_t axes[], int32_t rank)
{
    return (rank == 0 || axes[rank - 1] != unwritten) &&
           (rank == SDS_MAX_RANK || axes[rank] == unwritten);
}

hsize_t *out(int64_t axes[])
{
    return reinterpret_cast<hsize_t *>(axes);
}

// Blocks that touch, and a single one, are many of one element: one selection has one description.
void merge_blocks(sds_hyperslab &slab)
{
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        if (slab.count[axis] != 1 && slab.stride[axis] != slab.block[axis]) continue;
        slab.count[axis] *= slab.block[axis];
        slab.stride[axis] = slab.block[axis] = 1;
    }
}

bool is_box(const sds_hyperslab &slab)
{
    for (int32_t axis = 0; axis < slab.rank; axis++)
        if (slab.stride[axis] != 1) return false;
    return true;
}

// A regular hyperslab of the slab's rank.
bool read_regular(const Functions &hdf5, hid_t space, sds_hyperslab &slab)
{
    mark_rank(slab.start, slab.rank);
    if (hdf5.H5Sis_regular_hyperslab(space) <= 0 ||
        hdf5.H5Sget_regular_hyperslab(space, out(slab.start), out(slab.stride), out(slab.count),
                                      out(slab.block)) < 0 ||
        !is_of_rank(slab.start, slab.rank))
        return false;
    merge_blocks(slab);
    return true;
}

bool select_box(const Host &host, hid_t space, const int64_t extent[], Selection &selection)
{
    sds_hyperslab &slab = selection.slab;
    int64_t last[SDS_MAX_RANK];
    selection.n_elements = see_box(host, space, slab.rank, extent, slab.start, last);
    if (selection.n_elements == 0) return false;
    selection.kind = SDS_SELECT_HYPERSLAB;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        slab.count[axis] = last[axis] - slab.start[axis] + 1;
        slab.stride[axis] = slab.block[axis] = 1;
    }
    return true;
}

void select_whole(int32_t rank, const int64_t extent[], Selection &selection)
{
    selection.kind = SDS_SELECT_ALL;
    selection.slab.rank = rank;
    for (int32_t axis = 0; axis < rank; axis++) {
        selection.slab.start[axis] = 0;
        selection.slab.stride[axis] = selection.slab.block[axis] = 1;
        selection.slab.count[axis] = extent[axis];
    }
    selection.n_elements = n_selected(selection.slab);
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

bool is_selection(const Host &host, hid_t space)
{
    return (space >= 0 && space <= last_special_space) ||
           host.hdf5.H5Iget_type(space) == H5I_DATASPACE;
}

Selection whole(int32_t rank, const int64_t extent[])
{
    Selection selection;
    select_whole(rank, extent, selection);
    return selection;
}

Selection selection_of(const Host &host, hid_t file_space, int32_t rank, const int64_t extent[])
{
    Selection selection;
    select(host, file_space, rank, extent, selection);
    return selection;
}

void select(const Host &host, hid_t file_space, int32_t rank, const int64_t extent[],
            Selection &selection)
{
    const Functions &hdf5 = host.hdf5;
    const int type = type_of(hdf5, file_space);
    selection.slab.rank = rank;
    if (type == select_hyperslabs && read_regular(hdf5, file_space, selection.slab)) {
        selection.kind = SDS_SELECT_HYPERSLAB;
        selection.n_elements = n_selected(selection.slab);
        return;
    }
    select_whole(rank, extent, selection);
    if (file_space == H5S_ALL) return;
    if (type == select_unknown || hdf5.H5Sget_simple_extent_ndims(file_space) != rank) {
        selection.kind = SDS_SELECT_IRREGULAR;
        return;
    }
    switch (type) {
    case select_all:
        return;
    case select_none:
        selection.kind = SDS_SELECT_NONE;
        memset(selection.slab.count, 0, sizeof selection.slab.count);
        selection.n_elements = 0;
        return;
    default:
        selection.kind = type == select_points ? SDS_SELECT_POINTS : SDS_SELECT_IRREGULAR;
        read_bounds(hdf5, file_space, selection.slab);
        selection.n_elements = static_cast<int64_t>(hdf5.H5Sget_select_npoints(file_space));
        return;
    }
}

void select_done(const Host &host, hid_t file_space, int32_t rank, const int64_t extent[],
                 bool &box, Selection &selection)
{
    if (file_space == H5S_ALL) {
        select_whole(rank, extent, selection);
        return;
    }
    // A question costs a twentieth of a small read.
    if (box) {
        selection.slab.rank = rank;
        if (select_box(host, file_space, extent, selection)) return;
    }
    select(host, file_space, rank, extent, selection);
    box = selection.kind == SDS_SELECT_HYPERSLAB && is_box(selection.slab);
}

SDS_HOT int64_t see_whole(int32_t rank, const int64_t extent[], int64_t first[], int64_t last[])
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < rank; axis++) {
        first[axis] = 0;
        last[axis] = extent[axis] - 1;
        n *= extent[axis];
    }
    return n;
}

// A box has as many elements as lie within its bounds.
SDS_HOT int64_t see_box(const Host &host, hid_t space, int32_t rank, const int64_t extent[],
                        int64_t first[], int64_t last[])
{
    if (seldom(space <= last_special_space)) return 0;
    const int64_t n = host.hdf5.H5Sget_select_npoints(space);
    if (seldom(n <= 0)) return 0; // nothing has no bounds
    mark_rank(first, rank);
    if (seldom(host.hdf5.H5Sget_select_bounds(space, out(first), out(last)) < 0) ||
        seldom(!is_of_rank(first, rank)))
        return 0;
    int64_t n_between = 1, left_out = 0;
    for (int32_t axis = 0; axis < rank; axis++) {
        const int64_t behind = last[axis] + 1;
        n_between *= behind - first[axis];
        left_out |= first[axis] | (behind - extent[axis]);
    }
    return mostly(n_between == n) && mostly(left_out != 0) ? n : 0;
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
