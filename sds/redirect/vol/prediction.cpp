#include "prediction.h"

#include <string.h>

#include "config.h"

namespace sds::vol
{
namespace
{

// For the features of one layout; past it, bounds serve.
constexpr int64_t budget_ns = 50000;
constexpr double unpredictable = -1.0;

int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

double predict_contiguous(const sds_array &array, const sds_hyperslab &slab,
                          const sds_file_layout &layout, const sds_cost_model &model)
{
    sds_runs runs;
    sds_features features;
    int64_t gap_paper = 0;
    if (sds_runs_of(&array, &slab, &runs) != SDS_OK ||
        sds_features_of_runs(&runs, &layout.striping, &layout.raid, budget_ns, &features) != SDS_OK)
        return unpredictable;
    if (model.gap == SDS_GAP_PAPER && sds_block_gap_paper(&array, &slab, &gap_paper) != SDS_OK)
        return unpredictable;
    return predict_seconds(model, features, gap_paper);
}

// Chunks that the slab touches on one axis, never too many: an original that looks cheaper than it
// is costs a chance, one that looks dearer costs time.
int64_t chunks_touched(const sds_hyperslab &slab, int32_t axis, int64_t chunk)
{
    const int64_t first = slab.start[axis] / chunk;
    const int64_t last =
        (slab.start[axis] + (slab.count[axis] - 1) * slab.stride[axis] + slab.block[axis] - 1) /
        chunk;
    const int64_t range = last - first + 1;
    if (slab.count[axis] == 1 || slab.stride[axis] <= chunk) return range;
    const int64_t per_block = slab.block[axis] > chunk ? slab.block[axis] / chunk : 1;
    return slab.count[axis] * per_block < range ? slab.count[axis] * per_block : range;
}

// a *= b; false where it does not fit.
bool multiply(int64_t &a, int64_t b)
{
    return !__builtin_mul_overflow(a, b, &a);
}

bool chunk_features(const sds_table_dataset &dataset, const sds_trace_dataset &stored,
                    const sds_hyperslab &slab, sds_features &out)
{
    int64_t n_chunks = 1, n_elements = 1;
    for (int32_t axis = 0; axis < slab.rank; axis++)
        if (stored.chunk[axis] <= 0 ||
            !multiply(n_chunks, chunks_touched(slab, axis, stored.chunk[axis])) ||
            !multiply(n_elements, slab.count[axis] * slab.block[axis]))
            return false;
    return features_of_chunks(dataset, stored, n_chunks, n_elements, out);
}

} // namespace

double predict_seconds(const sds_cost_model &model, const sds_features &features, int64_t gap_paper)
{
    const int64_t n_osts = features.osts_touched.high > 1 ? features.osts_touched.high : 1;
    const double processes_per_ost =
        static_cast<double>(config().n_ranks) / static_cast<double>(n_osts);
    return sds_cost_predict(&model, &features, gap_paper, processes_per_ost);
}

// HDF5 reads whole chunks, one request each. Where they lie is not known: their blocks are taken
// as dealt evenly to the disks, with a gap before each chunk.
bool features_of_chunks(const sds_table_dataset &dataset, const sds_trace_dataset &stored,
                        int64_t n_chunks, int64_t n_elements, sds_features &out)
{
    int64_t bytes = dataset.element_bytes;
    for (int32_t axis = 0; axis < dataset.rank; axis++)
        if (stored.chunk[axis] <= 0 || !multiply(bytes, stored.chunk[axis])) return false;
    if (!multiply(bytes, n_chunks)) return false;
    const sds_file_layout &layout = dataset.layout;
    const int64_t n_stripes = divide_up(bytes, layout.striping.stripe_bytes);
    const int64_t n_osts =
        n_stripes < layout.striping.stripe_count ? n_stripes : layout.striping.stripe_count;
    int64_t n_disks = n_osts;
    if (!multiply(n_disks, layout.raid.data_disks)) return false;
    int64_t row_bytes = n_disks;
    if (!multiply(row_bytes, layout.raid.unit_bytes) || row_bytes <= 0) return false;
    const int64_t depth = divide_up(bytes, row_bytes);
    memset(&out, 0, sizeof out);
    out.runs = n_chunks;
    out.bytes_useful = n_elements * dataset.element_bytes;
    out.bytes_touched = {bytes, bytes};
    out.block_depth = {depth, depth};
    out.block_gap_count = out.block_gap_distance = {n_chunks - 1, n_chunks - 1};
    out.osts_touched = {n_osts, n_osts};
    out.disks_touched = {n_disks, n_disks};
    return true;
}

bool is_one_run(const sds_table_dataset &dataset, const sds_hyperslab &slab)
{
    if (dataset.storage != SDS_TABLE_CONTIGUOUS) return false;
    // Behind the first axis with several indices, every axis must be whole.
    bool begun = false;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        const int64_t n = slab.count[axis] * slab.block[axis];
        if (begun && n != dataset.extent[axis]) return false;
        if (n == 1) continue;
        if (slab.count[axis] > 1 && slab.stride[axis] != slab.block[axis]) return false;
        begun = true;
    }
    return true;
}

sds_array array_of(const sds_table_dataset &dataset, const sds_candidate &candidate)
{
    sds_array array = {};
    array.rank = dataset.rank;
    for (int32_t axis = 0; axis < dataset.rank; axis++)
        array.extent[axis] = dataset.extent[candidate.order[axis]];
    array.element_bytes = dataset.element_bytes;
    array.offset_bytes = candidate.data_offset_bytes;
    return array;
}

double predict_original(const sds_table_dataset &dataset, const sds_trace_dataset &stored,
                        const sds_hyperslab &slab)
{
    if (dataset.storage == SDS_TABLE_CONTIGUOUS) {
        sds_array array = {};
        array.rank = dataset.rank;
        memcpy(array.extent, dataset.extent, static_cast<size_t>(dataset.rank) * sizeof(int64_t));
        array.element_bytes = dataset.element_bytes;
        array.offset_bytes = dataset.data_offset_bytes;
        return predict_contiguous(array, slab, dataset.layout, dataset.model);
    }
    sds_features features;
    if (!chunk_features(dataset, stored, slab, features)) return unpredictable;
    return predict_seconds(dataset.model, features, features.block_gap_distance.high);
}

double predict_replica(const sds_table_dataset &dataset, const sds_candidate &candidate,
                       const sds_hyperslab &slab)
{
    sds_hyperslab permuted;
    if (sds_hyperslab_permute(&slab, candidate.order, &permuted) != SDS_OK) return unpredictable;
    return predict_contiguous(array_of(dataset, candidate), permuted, candidate.layout,
                              candidate.model);
}

} // namespace sds::vol
