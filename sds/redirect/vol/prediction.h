// The predicted time of a read, from the original and from a replica.
#pragma once

#include "sds/table_format.h"
#include "sds/trace_format.h"

namespace sds::vol
{

// Seconds; negative where nothing can be predicted.
double predict_original(const sds_table_dataset &dataset, const sds_trace_dataset &stored,
                        const sds_hyperslab &slab);
double predict_replica(const sds_table_dataset &dataset, const sds_candidate &candidate,
                       const sds_hyperslab &slab);

// By one model; gap_paper counts only where the model was fitted with it.
double predict_seconds(const sds_cost_model &model, const sds_features &features,
                       int64_t gap_paper);
// What a read through HDF5 touches of a source of which it needs so many chunks, for n_elements.
// False where the numbers are too great.
bool features_of_chunks(const sds_table_dataset &dataset, const sds_trace_dataset &stored,
                        int64_t n_chunks, int64_t n_elements, sds_features &out);

// True where the original holds all that is selected in one piece: no replica reads less.
bool is_one_run(const sds_table_dataset &dataset, const sds_hyperslab &slab);

// The array that the candidate stores: the source's axes in its order.
sds_array array_of(const sds_table_dataset &dataset, const sds_candidate &candidate);

} // namespace sds::vol
