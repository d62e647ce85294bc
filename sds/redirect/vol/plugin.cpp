// Entry points by which an HDF5 library loads the connector.
#include "chunk_filters.h"
#include "hdf5_memory.h"
#include "native_alias.h"
#include "vol_class.h"

#define SDS_EXPORT extern "C" __attribute__((visibility("default")))

SDS_EXPORT int H5PLget_plugin_type(void);
SDS_EXPORT const void *H5PLget_plugin_info(void);

SDS_EXPORT int H5PLget_plugin_type(void)
{
    return sds::vol::plugin_type_vol;
}

// The class struct for the library that calls; it is told by the return address, so this function
// must not be inlined. A library that cannot be served gets its own native connector.
SDS_EXPORT __attribute__((noinline)) const void *H5PLget_plugin_info(void)
{
    const void *caller = __builtin_extract_return_addr(__builtin_return_address(0));
    if (const void *alias = sds::vol::known_native_alias(caller)) return alias;
    sds::vol::Problem problem = {};
    const sds::vol::Host *host = sds::vol::host_of_caller(caller, problem);
    if (!host) return sds::vol::make_native_alias(caller, problem.text);
    sds::vol::find_codecs();
    sds::vol::find_malloc();
    return &host->connector_class;
}
