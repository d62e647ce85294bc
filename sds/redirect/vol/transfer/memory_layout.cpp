#include "memory_layout.h"

#include <string.h>

namespace sds::vol
{
namespace
{

// A selection whose indices advance evenly on every axis, within an array in C order.
struct Box {
    int32_t rank;
    int64_t shape[SDS_MAX_RANK];  // indices selected
    int64_t offset;               // of the first, elements
    int64_t stride[SDS_MAX_RANK]; // elements between neighbours
};

// The distance between selected neighbours; 0 where it varies.
int64_t step_of(const sds_hyperslab &slab, int32_t axis)
{
    if (slab.count[axis] == 1) return 1;
    if (slab.block[axis] == 1) return slab.stride[axis];
    return slab.block[axis] == slab.stride[axis] ? 1 : 0;
}

bool box_of(const sds_hyperslab &slab, const int64_t extent[], Box &out)
{
    out.rank = slab.rank;
    out.offset = 0;
    int64_t elements = 1;
    for (int32_t axis = slab.rank - 1; axis >= 0; axis--) {
        const int64_t step = step_of(slab, axis);
        if (step == 0) return false;
        out.shape[axis] = slab.count[axis] * slab.block[axis];
        out.stride[axis] = step * elements;
        out.offset += slab.start[axis] * elements;
        elements *= extent[axis];
    }
    return true;
}

bool is_contiguous(const Box &box)
{
    int64_t expected = 1;
    for (int32_t axis = box.rank - 1; axis >= 0; axis--) {
        if (box.shape[axis] == 1) continue;
        if (box.stride[axis] != expected) return false;
        expected *= box.shape[axis];
    }
    return true;
}

void pack(const int64_t shape[], int32_t rank, int64_t element_bytes, MemoryLayout &out)
{
    out.is_packed = true;
    int64_t stride_bytes = element_bytes;
    for (int32_t axis = rank - 1; axis >= 0; axis--) {
        out.stride_bytes[axis] = stride_bytes;
        stride_bytes *= shape[axis];
    }
}

// Give each axis of the shape the stride of the box's axis of the same length, axes of length 1
// apart. False where the lengths differ.
bool match_axes(const Box &box, const int64_t shape[], int32_t rank, int64_t element_bytes,
                MemoryLayout &out)
{
    int32_t from = 0;
    for (int32_t axis = 0; axis < rank; axis++) {
        out.stride_bytes[axis] = 0;
        if (shape[axis] == 1) continue;
        while (from < box.rank && box.shape[from] == 1)
            from++;
        if (from == box.rank || box.shape[from] != shape[axis]) return false;
        out.stride_bytes[axis] = box.stride[from++] * element_bytes;
    }
    while (from < box.rank && box.shape[from] == 1)
        from++;
    return from == box.rank;
}

// HDF5 refuses a selection that reaches outside.
bool lies_within(const sds_hyperslab &slab, const int64_t extent[])
{
    for (int32_t axis = 0; axis < slab.rank; axis++)
        if (slab.start[axis] + (slab.count[axis] - 1) * slab.stride[axis] + slab.block[axis] >
            extent[axis])
            return false;
    return true;
}

bool read_memory_space(const Host &host, hid_t space, int64_t n_elements, Box &out)
{
    hsize_t dimension[SDS_MAX_RANK];
    int64_t extent[SDS_MAX_RANK];
    if (!is_selection(host, space)) return false;
    const int rank = host.hdf5.H5Sget_simple_extent_dims(space, dimension, nullptr);
    // A null space has no axes either, as a scalar one, but no element.
    if (rank < 0 || host.hdf5.H5Sget_select_npoints(space) != n_elements) return false;
    for (int axis = 0; axis < rank; axis++)
        extent[axis] = static_cast<int64_t>(dimension[axis]);
    const Selection selection = selection_of(host, space, rank, extent);
    return (selection.kind == SDS_SELECT_ALL || selection.kind == SDS_SELECT_HYPERSLAB) &&
           selection.n_elements == n_elements && is_where_it_says(host, space, selection) &&
           lies_within(selection.slab, extent) && box_of(selection.slab, extent, out);
}

} // namespace

bool memory_layout_of(const Host &host, hid_t memory_space, const int64_t extent[],
                      const Selection &selection, int64_t element_bytes, MemoryLayout &out)
{
    memset(&out, 0, sizeof out);
    const int32_t rank = selection.slab.rank;
    int64_t shape[SDS_MAX_RANK];
    sds_hyperslab_shape(&selection.slab, shape);
    Box box;
    if (memory_space == space_block) {
        pack(shape, rank, element_bytes, out);
        return true;
    }
    if (memory_space == H5S_ALL) {
        // The buffer is as large as the dataset, and elements keep their places in it.
        if (!box_of(selection.slab, extent, box)) return false;
    } else if (memory_space <= last_special_space ||
               !read_memory_space(host, memory_space, selection.n_elements, box)) {
        return false;
    }
    out.offset_bytes = box.offset * element_bytes;
    if (is_contiguous(box)) {
        pack(shape, rank, element_bytes, out);
        return true;
    }
    return match_axes(box, shape, rank, element_bytes, out);
}

} // namespace sds::vol
