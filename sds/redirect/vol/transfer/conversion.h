// What happens to elements between a replica and the program's memory.
#pragma once

#include "host.h"

namespace sds::vol
{

// None where both types are equal.
struct Conversion {
    hid_t from; // 0: none
    hid_t to;
    hid_t dxpl;
    int64_t from_bytes;
    int64_t to_bytes;
    bool is_of_numbers; // which cannot fail
    // Members of a compound in memory that the file has not keep their values: HDF5 converts on
    // top of what lies in memory.
    bool needs_background;
};

// From the type of the dataset (element_bytes) to that of the memory. False where SDS leaves the
// conversion to HDF5, because there is none or the program watches it by a callback.
bool plan_conversion(const Host &host, hid_t file_type, int64_t element_bytes, hid_t memory_type,
                     hid_t dxpl, Conversion &out);

// Convert n elements in place. buffer holds as many of the larger type; background as many of the
// memory's where it is needed, else nullptr.
bool convert(const Host &host, const Conversion &conversion, int64_t n_elements, void *buffer,
             void *background);

} // namespace sds::vol
