// What a read of a dataset stored in chunks costs.
#pragma once

#include "sds/table_format.h"

namespace sds::vol
{

// How a dataset is cut into chunks, by the table.
struct ChunkGrid {
    int32_t rank;
    const int64_t *shape;     // of a chunk, elements
    int64_t chunk_bytes;      // of one, decoded
    int64_t stored_bytes;     // of one in the file, on average
    int64_t element_bytes;    // of one element
    double decode_s_per_byte; // decoded bytes
};

// Of the original, and of a candidate stored in chunks. False where its numbers are too great.
bool grid_of(const sds_table_dataset &dataset, ChunkGrid &out);
bool grid_of(const sds_table_dataset &dataset, const sds_candidate &candidate, ChunkGrid &out);

// Where the exact number of chunks would cost too much to find: at most so many, or at least. An
// original that looks cheaper than it is costs a chance, a replica that does costs time.
enum class Estimate { at_least, at_most };

// Chunks that a slab (in the grid's axes) touches; -1 where the number is too great.
int64_t chunks_touched(const ChunkGrid &grid, const sds_hyperslab &slab, Estimate estimate);

// Seconds of reading so many chunks for the sake of n_elements through HDF5, their filters undone;
// negative where nothing can be predicted.
double predict_chunks(const ChunkGrid &grid, int64_t n_chunks, int64_t n_elements,
                      const sds_file_layout &layout, const sds_cost_model &model);

} // namespace sds::vol
