// Codecs inside the filters that HDF5 has loaded as plugins.
#pragma once

#include <stddef.h>

#include "sds/filters.h"

namespace sds::vol
{

// Their functions, by the images' own tables: dlopen and dlsym would wait for the loader's lock,
// with HDF5's held. They are good for as long as no image is unloaded.
// number, values: of a filter that this HDF5 has, as HDF5 tells them. False where the core does not
// undo it, or no plugin for this filter has the functions.
bool find_plugin_codec(int number, size_t n_values, const unsigned values[], sds_filter &out);

// Fill in the functions of a filter's codec; false where one of them is not found.
using FindFunction = void *(*)(const void *where, const char *name);
bool find_functions(sds_filter &filter, FindFunction find, const void *where);

// Whether what undoes it takes memory from malloc meanwhile.
bool takes_memory(const sds_filter &filter);

} // namespace sds::vol
