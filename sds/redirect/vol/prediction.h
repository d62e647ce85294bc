// The predicted time of a read, from the original and from a replica.
#pragma once

#include "sds/table_format.h"

namespace sds::vol
{

// Seconds; negative where nothing can be predicted.
double predict_original(const sds_table_dataset &dataset, const sds_hyperslab &slab);
double predict_replica(const sds_table_dataset &dataset, const sds_candidate &candidate,
                       const sds_hyperslab &slab);

// By one model; gap_paper counts only where the model was fitted with it.
double predict_seconds(const sds_cost_model &model, const sds_features &features,
                       int64_t gap_paper);

// True where a contiguous original of this extent holds all that is selected in one piece: no
// replica reads less.
bool is_one_run(const int64_t extent[], const sds_hyperslab &slab);

} // namespace sds::vol
