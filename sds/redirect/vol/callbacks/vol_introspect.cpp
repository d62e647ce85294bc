// What the connector is and can do.
#include "connector_info.h"
#include "object.h"
#include "pass_on.h"
#include "vol_class.h"

namespace sds::vol
{

// Asked for the terminal connector, the answer comes from below: HDF5 refuses native-only
// operations (references, direct chunk access) to whoever claims to be terminal and is not native.
herr_t get_connector_class(Host &host, void *object, H5VL_get_conn_lvl_t level,
                           const H5VL_class_t **found)
{
    if (level == H5VL_GET_CONN_LVL_CURR) {
        *found = &host.connector_class;
        return 0;
    }
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return pass_on(self, self.below->introspect_cls.get_conn_cls,
                   host.hdf5.H5VLintrospect_get_conn_cls, level, found);
}

herr_t get_capabilities(Host &host, const void *info, uint64_t *flags)
{
    uint64_t below = 0;
    if (info) {
        const auto &self = *static_cast<const ConnectorInfo *>(info);
        if (host.hdf5.H5VLintrospect_get_cap_flags(self.under_info, self.under_connector, &below) <
            0)
            return -1;
    } else if (host.hdf5.H5VLget_cap_flags(host.native, &below) < 0) {
        return -1;
    }
    *flags = host.connector_class.cap_flags | below;
    return 0;
}

// Optional operations are the layer below's; whether it has one decides whether HDF5 calls it.
herr_t query_optional(Host &host, void *object, H5VL_subclass_t subclass, int operation,
                      uint64_t *flags)
{
    const hid_t connector = object ? Handle(object)->connector : host.native;
    return host.hdf5.H5VLintrospect_opt_query(under(object), connector, subclass, operation, flags);
}

} // namespace sds::vol
