// What a dataset may be read from, besides through HDF5.
#pragma once

#include "original_file.h"
#include "sds/table_format.h"

namespace sds::vol
{

// Made for a read, or for a decision: pointers are into the table and the open dataset.
struct Layouts {
    sds_table_dataset dataset; // no candidates where no table names it
    const sds_table *table;
    int32_t index;          // of the dataset in the table
    OriginalFile *original; // nullptr: HDF5 alone reads it
    sds_candidate itself;   // the original, where the engine may read it

    sds_candidate candidate(int32_t i) const
    {
        sds_candidate out;
        sds_table_candidate_at(table, index, i, &out); // tables are checked when they are opened
        return out;
    }
};

} // namespace sds::vol
