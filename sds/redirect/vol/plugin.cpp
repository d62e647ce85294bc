// Entry points by which an HDF5 library loads the connector.
#include "vol_class.h"

#define SDS_EXPORT extern "C" __attribute__((visibility("default")))

SDS_EXPORT int H5PLget_plugin_type(void);
SDS_EXPORT const void *H5PLget_plugin_info(void);

SDS_EXPORT int H5PLget_plugin_type(void)
{
    return sds::vol::plugin_type_vol;
}

// The class struct for the library that calls; it is told by the return address, so this function
// must not be inlined. A library that cannot be bound gets none: HDF5 1.12 and 1.14 then go on
// natively, HDF5 2.x does not survive it, and no other answer would save it, because without its
// functions there is nothing that a class could do. `sds run` does not let it come to this.
SDS_EXPORT __attribute__((noinline)) const void *H5PLget_plugin_info(void)
{
    const sds::vol::Host *host =
        sds::vol::host_of_caller(__builtin_extract_return_addr(__builtin_return_address(0)));
    return host ? &host->connector_class : nullptr;
}
