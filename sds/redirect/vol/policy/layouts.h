// What a dataset may be read from, and what the core chooses it by.
#pragma once

#include "original_file.h"
#include "sds/choose.h"

namespace sds::vol
{

struct OpenDataset;

// Made for a read, or for a decision: pointers are into the table and the open dataset. Without
// candidates where no table names the dataset.
struct Layouts : sds_layouts {
    OriginalFile *original; // nullptr: HDF5 alone reads it
    sds_candidate itself;   // a contiguous original as a replica of itself
    bool active_only;       // replicas in shadow are left out

    sds_candidate candidate(int32_t i) const
    {
        sds_candidate out;
        sds_layouts_candidate(this, i, &out);
        return out;
    }
};

// A read to choose for. look(read, file, choice): what the page cache holds of it in the file that
// the engine would read; slab: nullptr where elements are listed.
struct ReadToChoose {
    const OpenDataset &dataset;
    const Layouts &layouts;
    const sds_hyperslab *slab;
    sds_cache (*look)(const ReadToChoose &read, sds_file *file, int32_t choice);
    void *listed; // where elements are
};

// What is known of the process and of the files; the result points to the read.
sds_choose_given given_of(const ReadToChoose &read);

// What serves a read, and how many reads alike are served so before it is chosen anew.
struct Choice {
    int32_t of; // as sds_choose returns it
    uint32_t n_uses;
    double by_hdf5_s = -1; // by the original's model; negative where it predicts nothing
    int32_t n_threads = 0; // that decode the original's chunks, where SDS_BY_ENGINE is to do that
};
Choice choose_box(const OpenDataset &dataset, const Layouts &layouts, const sds_hyperslab &slab);

} // namespace sds::vol
