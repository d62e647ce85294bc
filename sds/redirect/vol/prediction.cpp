#include "prediction.h"

#include <string.h>

#include "candidate.h"
#include "chunk_grid.h"
#include "config.h"
#include "sds/tiles.h"

namespace sds::vol
{
namespace
{

// For the features of one layout; past it, bounds serve.
constexpr int64_t budget_ns = 50000;
constexpr double unpredictable = -1.0;

double predict_contiguous(const sds_array &array, const sds_hyperslab &slab,
                          const sds_file_layout &layout, const sds_cost_model &model,
                          int64_t within_ns = budget_ns)
{
    sds_runs runs;
    sds_features features;
    int64_t gap_paper = 0;
    if (sds_runs_of(&array, &slab, &runs) != SDS_OK ||
        sds_features_of_runs(&runs, &layout.striping, &layout.raid, within_ns, &features) != SDS_OK)
        return unpredictable;
    if (model.gap == SDS_GAP_PAPER && sds_block_gap_paper(&array, &slab, &gap_paper) != SDS_OK)
        return unpredictable;
    return predict_seconds(model, features, gap_paper);
}

int64_t elements_of(const sds_hyperslab &slab)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < slab.rank; axis++)
        n *= slab.count[axis] * slab.block[axis];
    return n;
}

double predict_piece(void *context, const sds_array *tile, const sds_hyperslab *slab, int64_t n)
{
    const auto &candidate = *static_cast<const sds_candidate *>(context);
    const int64_t share_ns = n > SDS_MAX_COUNTED_PIECES ? budget_ns : budget_ns / n;
    return predict_contiguous(*tile, *slab, candidate.layout, candidate.model, share_ns);
}

} // namespace

double predict_seconds(const sds_cost_model &model, const sds_features &features, int64_t gap_paper)
{
    const int64_t n_osts = features.osts_touched.high > 1 ? features.osts_touched.high : 1;
    const double processes_per_ost =
        static_cast<double>(config().n_ranks) / static_cast<double>(n_osts);
    return sds_cost_predict(&model, &features, gap_paper, processes_per_ost);
}

bool is_one_run(const int64_t extent[], const sds_hyperslab &slab)
{
    // Behind the first axis with several indices, every axis must be whole.
    bool begun = false;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        const int64_t n = slab.count[axis] * slab.block[axis];
        if (begun && n != extent[axis]) return false;
        if (n == 1) continue;
        if (slab.count[axis] > 1 && slab.stride[axis] != slab.block[axis]) return false;
        begun = true;
    }
    return true;
}

double predict_original(const sds_table_dataset &dataset, const sds_hyperslab &slab)
{
    if (dataset.storage == SDS_TABLE_CONTIGUOUS) {
        sds_array array = {};
        array.rank = dataset.rank;
        memcpy(array.extent, dataset.extent, static_cast<size_t>(dataset.rank) * sizeof(int64_t));
        array.element_bytes = dataset.element_bytes;
        array.offset_bytes = dataset.data_offset_bytes;
        return predict_contiguous(array, slab, dataset.layout, dataset.model);
    }
    ChunkGrid grid;
    if (dataset.storage != SDS_TABLE_CHUNKED || !grid_of(dataset, grid)) return unpredictable;
    return predict_chunks(grid, chunks_touched(grid, slab, Estimate::at_least), elements_of(slab),
                          dataset.layout, dataset.model);
}

double predict_replica(const sds_table_dataset &dataset, const sds_candidate &candidate,
                       const sds_hyperslab &slab)
{
    sds_hyperslab stored;
    if (candidate.tiles.n > 0) {
        sds_candidate of = candidate;
        return sds_tiles_cost(&of, &dataset, &slab, predict_piece, &of);
    }
    if (sds_candidate_slab(&candidate, &slab, &stored) != SDS_OK) return unpredictable;
    if (candidate.storage == SDS_TABLE_CONTIGUOUS)
        return predict_contiguous(array_of(dataset, candidate), stored, candidate.layout,
                                  candidate.model);
    ChunkGrid grid;
    if (!grid_of(dataset, candidate, grid)) return unpredictable;
    return predict_chunks(grid, chunks_touched(grid, stored, Estimate::at_most), elements_of(slab),
                          candidate.layout, candidate.model);
}

} // namespace sds::vol
