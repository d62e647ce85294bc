// Reads that are no boxes: unions of hyperslabs, points, and any way of lying in memory.
#pragma once

#include "conversion.h"
#include "sds/read_engine.h"
#include "sds/table_format.h"
#include "selection.h"

namespace sds::vol
{

// What is read, and where it goes: two selections of as many elements, paired in their order.
struct ScatteredRead {
    hid_t file_space;   // of the dataset's extent, or H5S_ALL
    hid_t memory_space; // of the program's memory, or H5S_ALL for a packed array
    int64_t n_elements;
    sds_selection_kind kind;   // in the file
    int64_t low[SDS_MAX_RANK]; // the box around all that is selected in the file, both inclusive
    int64_t high[SDS_MAX_RANK];
};

// Complete a read from the spaces that the program named; false for what HDF5 refuses.
// selection: what file_space selects, of a dataset of that extent.
bool describe_scattered(const Host &host, hid_t file_space, hid_t memory_space,
                        const Selection &selection, ScatteredRead &out);

// False where points in memory may be written twice: whose value is the last depends on how the
// original is stored.
bool writes_once(const Host &host, const ScatteredRead &read);

// Read it from the candidate, open as file, into buffer. False on any error, and where only what is
// cached is to be read and not all is; the buffer then holds anything.
bool transfer_scattered(const Host &host, sds_file *file, bool only_cached,
                        const sds_table_dataset &dataset, const sds_candidate &candidate,
                        const ScatteredRead &read, const Conversion &conversion, void *buffer);

} // namespace sds::vol
