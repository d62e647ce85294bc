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

// The dataspace behind an identifier; nullptr where it is none. A public function costs a tenth of
// a small read, most of it for what surrounds its question; these cost next to nothing.
const H5S_t *look_into(const Host &host, hid_t space)
{
    return static_cast<const H5S_t *>(host.hdf5.H5I_object_verify(space, H5I_DATASPACE));
}

// Describe what lies between the bounds of a selection. Returns the number of elements there.
int64_t take_bounds(const int64_t last[], sds_hyperslab &slab)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        slab.count[axis] = last[axis] - slab.start[axis] + 1;
        slab.stride[axis] = slab.block[axis] = 1;
        n *= slab.count[axis];
    }
    return n;
}

// The same as read_regular, of boxes that lie in the extent: nearly all. Of others, the public
// functions say what they are.
bool take_box(const Host &host, hid_t space, const int64_t extent[], Selection &selection)
{
    int64_t last[SDS_MAX_RANK];
    sds_hyperslab &slab = selection.slab;
    if (!host.shows_spaces || !see_box(host, space, slab.rank, slab.start, last)) return false;
    for (int32_t axis = 0; axis < slab.rank; axis++)
        if (last[axis] >= extent[axis]) return false;
    selection.kind = SDS_SELECT_HYPERSLAB;
    selection.n_elements = take_bounds(last, slab);
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

// A selection of as many elements as lie within its bounds; not of all: that has a kind of its own.
bool read_box(const Functions &hdf5, hid_t space, const int64_t extent[], Selection &selection)
{
    sds_hyperslab &slab = selection.slab;
    selection.n_elements = hdf5.H5Sget_select_npoints(space);
    if (selection.n_elements <= 0) return false; // nothing has no bounds
    mark_rank(slab.start, slab.rank);
    if (hdf5.H5Sget_select_bounds(space, out(slab.start), out(slab.count)) < 0 ||
        !is_of_rank(slab.start, slab.rank))
        return false;
    selection.kind = SDS_SELECT_HYPERSLAB;
    if (take_bounds(slab.count, slab) != selection.n_elements) return false;
    for (int32_t axis = 0; axis < slab.rank; axis++)
        if (slab.count[axis] != extent[axis]) return true;
    return false;
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
    if (space >= 0 && space <= last_special_space) return true;
    return host.shows_spaces ? look_into(host, space) != nullptr
                             : host.hdf5.H5Iget_type(space) == H5I_DATASPACE;
}

bool see_box(const Host &host, hid_t space, int32_t rank, int64_t first[], int64_t last[])
{
    if (seldom(rank < 0) || space <= last_special_space) return false;
    const Functions &hdf5 = host.hdf5;
    const H5S_t *seen = look_into(host, space);
    if (!seen || hdf5.H5S_get_select_type(seen) != select_hyperslabs ||
        hdf5.H5S_get_simple_extent_ndims(seen) != rank)
        return false;
    const hsize_t n = hdf5.H5S_get_select_npoints(seen);
    if (n == 0) return false; // nothing has no bounds
    if (seldom(hdf5.H5S_get_select_bounds(seen, out(first), out(last)) < 0)) {
        // It has been moved out of the space. Nothing else is on the stack: nothing has failed.
        hdf5.H5Eclose_stack(hdf5.H5Eget_current_stack());
        return false;
    }
    hsize_t n_between = 1;
    for (int32_t axis = 0; axis < rank; axis++) {
        if (seldom(last[axis] < first[axis])) return false; // unlimited
        n_between *= static_cast<hsize_t>(last[axis] - first[axis] + 1);
    }
    return n_between == n;
}

bool see_span(const Host &host, hid_t space, int64_t least, int64_t &n, int64_t &span)
{
    if (space <= last_special_space) return false;
    const Functions &hdf5 = host.hdf5;
    hsize_t extent[SDS_MAX_RANK], low[SDS_MAX_RANK], high[SDS_MAX_RANK];
    if (mostly(host.shows_spaces)) {
        const H5S_t *seen = look_into(host, space);
        if (!seen) return false;
        n = static_cast<int64_t>(hdf5.H5S_get_select_npoints(seen));
        if (mostly(n < least)) return false;
        if (seldom(hdf5.H5S_get_select_bounds(seen, low, high) < 0)) {
            // As in see_box().
            hdf5.H5Eclose_stack(hdf5.H5Eget_current_stack());
            return false;
        }
    } else {
        if (!is_selection(host, space)) return false;
        n = static_cast<int64_t>(hdf5.H5Sget_select_npoints(space));
        // What has been moved out of the space has no bounds, and HDF5 prints that.
        if (n < least || hdf5.H5Sselect_valid(space) <= 0 ||
            hdf5.H5Sget_select_bounds(space, low, high) < 0)
            return false;
    }
    const int rank = hdf5.H5Sget_simple_extent_dims(space, extent, nullptr);
    hsize_t first = 0, last = 0;
    for (int axis = 0; axis < rank; axis++) {
        first = first * extent[axis] + low[axis];
        last = last * extent[axis] + high[axis];
    }
    span = static_cast<int64_t>(last - first + 1);
    return rank > 0;
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
    selection.slab.rank = rank;
    if (take_box(host, file_space, extent, selection)) return;
    const int type = type_of(hdf5, file_space);
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
    // A question costs a twentieth of a small read.
    if (box && !host.shows_spaces && file_space > last_special_space) {
        selection.slab.rank = rank;
        if (read_box(host.hdf5, file_space, extent, selection)) return;
    }
    select(host, file_space, rank, extent, selection);
    box = selection.kind == SDS_SELECT_HYPERSLAB && is_box(selection.slab);
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
