// What a dataspace selects.
#pragma once

#include "host.h"
#include "sds/geometry.h"
#include "sds/trace_format.h"

namespace sds::vol
{

// Identifiers up to the last one are no dataspaces: H5S_ALL, H5S_BLOCK, H5S_PLIST.
constexpr hid_t space_block = 1; // in memory: packed, as many elements as the file selection has
constexpr hid_t last_special_space = 2;

// Whether HDF5 can be asked about the selection: of what is no dataspace it prints that.
bool is_selection(const Host &host, hid_t space);

struct Selection {
    sds_selection_kind kind;
    // Exact where kind is ALL or HYPERSLAB; else the bounding box.
    sds_hyperslab slab;
    int64_t n_elements;
};

// The whole of an extent.
Selection whole(int32_t rank, const int64_t extent[]);

// What file_space (or H5S_ALL) selects of a dataset of this extent. Its rank is the dataset's.
Selection selection_of(const Host &host, hid_t file_space, int32_t rank, const int64_t extent[]);

// The same, written to where it is wanted: it is large.
void select(const Host &host, hid_t file_space, int32_t rank, const int64_t extent[],
            Selection &out);
// The same for a read that HDF5 has carried out. It takes fewer questions where box is set, which
// says that the read before it selected a box, and is brought up to date.
void select_done(const Host &host, hid_t file_space, int32_t rank, const int64_t extent[],
                 bool &box, Selection &out);

// The indices of the first and of the last element where that is a box, as that of the read before
// was, and not all. Returns the number of elements; 0 for others, of which select_done tells.
// first, last: SDS_MAX_RANK values, for a space may have another rank than the dataset.
int64_t see_box(const Host &host, hid_t file_space, int32_t rank, const int64_t extent[],
                int64_t first[], int64_t last[]);

// The same of a read of all: rank values.
int64_t see_whole(int32_t rank, const int64_t extent[], int64_t first[], int64_t last[]);

// False where the space moves the selection by an offset (H5Soffset_simple), of which the
// description of a hyperslab says nothing.
bool is_where_it_says(const Host &host, hid_t space, const Selection &selection);

} // namespace sds::vol
