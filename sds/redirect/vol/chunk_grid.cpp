#include "chunk_grid.h"

#include <string.h>

#include "prediction.h"

namespace sds::vol
{
namespace
{

constexpr double unpredictable = -1.0;

int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

// a *= b; false where it does not fit.
bool multiply(int64_t &a, int64_t b)
{
    return !__builtin_mul_overflow(a, b, &a);
}

// axis_extent(axis): of the dataset in the grid's axes.
template <typename Extent>
bool make_grid(int32_t rank, const sds_chunking &chunks, int64_t element_bytes, Extent axis_extent,
               ChunkGrid &out)
{
    out = {rank, chunks.shape, element_bytes, 0, element_bytes, chunks.decode_s_per_byte};
    int64_t n_chunks = 1;
    for (int32_t axis = 0; axis < rank; axis++)
        if (!multiply(out.chunk_bytes, chunks.shape[axis]) ||
            !multiply(n_chunks, divide_up(axis_extent(axis), chunks.shape[axis])))
            return false;
    if (n_chunks > 0) out.stored_bytes = divide_up(chunks.stored_bytes, n_chunks);
    return true;
}

int64_t touched_on_axis(const sds_hyperslab &slab, int32_t axis, int64_t chunk, Estimate estimate)
{
    const int64_t first = slab.start[axis] / chunk;
    const int64_t last =
        (slab.start[axis] + (slab.count[axis] - 1) * slab.stride[axis] + slab.block[axis] - 1) /
        chunk;
    const int64_t range = last - first + 1;
    if (slab.count[axis] == 1 || slab.stride[axis] <= chunk) return range;
    int64_t per_block = 1; // of blocks that lie as well as they can
    if (estimate == Estimate::at_most)
        per_block = (slab.block[axis] + chunk - 2) / chunk + 1;
    else if (slab.block[axis] > chunk)
        per_block = slab.block[axis] / chunk;
    return slab.count[axis] * per_block < range ? slab.count[axis] * per_block : range;
}

// HDF5 reads whole chunks, one request each. Where they lie is not known: their blocks are taken
// as dealt evenly to the disks, with a gap before each chunk.
bool chunk_features(const ChunkGrid &grid, int64_t n_chunks, int64_t n_elements,
                    const sds_file_layout &layout, sds_features &out)
{
    int64_t bytes = grid.stored_bytes;
    memset(&out, 0, sizeof out);
    out.bytes_useful = n_elements;
    if (!multiply(bytes, n_chunks) || !multiply(out.bytes_useful, grid.element_bytes)) return false;
    const int64_t n_stripes = divide_up(bytes, layout.striping.stripe_bytes);
    const int64_t n_osts =
        n_stripes < layout.striping.stripe_count ? n_stripes : layout.striping.stripe_count;
    int64_t n_disks = n_osts > 0 ? n_osts : 1;
    if (!multiply(n_disks, layout.raid.data_disks)) return false;
    int64_t row_bytes = n_disks;
    if (!multiply(row_bytes, layout.raid.unit_bytes) || row_bytes <= 0) return false;
    const int64_t depth = divide_up(bytes, row_bytes);
    out.runs = n_chunks;
    out.bytes_touched = {bytes, bytes};
    out.block_depth = {depth, depth};
    out.block_gap_count = out.block_gap_distance = {n_chunks - 1, n_chunks - 1};
    out.osts_touched = {n_osts, n_osts};
    out.disks_touched = {n_disks, n_disks};
    return true;
}

} // namespace

bool grid_of(const sds_table_dataset &dataset, ChunkGrid &out)
{
    return make_grid(
        dataset.rank, dataset.chunks, dataset.element_bytes,
        [&](int32_t axis) { return dataset.extent[axis]; }, out);
}

bool grid_of(const sds_table_dataset &dataset, const sds_candidate &candidate, ChunkGrid &out)
{
    return make_grid(
        dataset.rank, candidate.chunks, dataset.element_bytes,
        [&](int32_t axis) { return candidate.region_extent[candidate.order[axis]]; }, out);
}

int64_t chunks_touched(const ChunkGrid &grid, const sds_hyperslab &slab, Estimate estimate)
{
    int64_t n_chunks = 1;
    for (int32_t axis = 0; axis < grid.rank; axis++)
        if (!multiply(n_chunks, touched_on_axis(slab, axis, grid.shape[axis], estimate))) return -1;
    return n_chunks;
}

double predict_chunks(const ChunkGrid &grid, int64_t n_chunks, int64_t n_elements,
                      const sds_file_layout &layout, const sds_cost_model &model)
{
    sds_features features;
    if (n_chunks < 0 || !chunk_features(grid, n_chunks, n_elements, layout, features))
        return unpredictable;
    const double decoded_bytes =
        static_cast<double>(n_chunks) * static_cast<double>(grid.chunk_bytes);
    return predict_seconds(model, features, features.block_gap_distance.high) +
           grid.decode_s_per_byte * decoded_bytes;
}

} // namespace sds::vol
