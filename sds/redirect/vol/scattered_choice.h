// Which replica serves a read that is no box, predicted from a part of what it selects.
#pragma once

#include "original_choice.h"
#include "scattered.h"
#include "sds/table_format.h"

namespace sds::vol
{

// Choices made for a dataset. Reads that look alike from outside are decided alike for a while.
struct ScatteredChoices {
    struct Choice {
        sds_selection_kind kind;
        int64_t n_elements;
        uint8_t size[SDS_MAX_RANK]; // of the bounding box, as a power of two
        uint64_t candidates;        // that hold all of it, one bit each
        int32_t candidate;          // chosen; by_hdf5, by_engine: the original
        uint32_t n_left;            // uses until it is made anew
    };
    static constexpr int most = 4;
    bool busy; // a thread is using them
    int n;
    Choice made[most];
};

// What a dataset may be read from.
struct Layouts {
    const sds_table_dataset &dataset;
    const sds_candidate *candidates;
    OriginalFile *original;      // nullptr: HDF5 alone reads it
    const sds_candidate &itself; // the original, where the engine may read it
};

// Elements are picked from contiguous replicas only, and from those that hold them all.
bool can_serve(const sds_candidate &candidate, const ScatteredRead &read);

// The index of the cheapest candidate that is cheaper than the original, or how that is read.
int32_t choose_scattered(const Host &host, ScatteredChoices &choices, const Layouts &layouts,
                         const ScatteredRead &read);

} // namespace sds::vol
