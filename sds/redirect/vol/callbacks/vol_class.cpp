#include "vol_class.h"

#include <string.h>

#include "connector_info.h"
#include "error_stack.h"
#include "tracing.h"

namespace sds::vol
{
namespace
{

// H5VL_CAP_FLAG_*: what the connector passes on. All of them from ATTR_BASIC (bit 3) to
// FILL_VALUES (bit 36) but the two for maps, which the native connector lacks, and NATIVE_FILES.
// Not THREADSAFE and not ASYNC: those are for the connector below to claim.
constexpr uint64_t capabilities()
{
    constexpr uint64_t native_files = 0x4, map_basic = 0x2000, map_more = 0x4000;
    uint64_t flags = native_files;
    for (int bit = 3; bit <= 36; bit++)
        flags |= uint64_t{1} << bit;
    return flags & ~(map_basic | map_more);
}

// The native connector's callbacks; nullptr where HDF5 is to call them itself.
const H5VL_class_t *native_class(const Host &host)
{
    // A build that runs callbacks concurrently lets go of its locks around them.
    if (host.hdf5.H5TS_user_cb_prepare) return nullptr;
    const H5VL_class_t *found = nullptr;
    // It wants an object, and does not look at it.
    void *any = const_cast<Host *>(&host);
    const herr_t status =
        host.hdf5.H5VLintrospect_get_conn_cls(any, host.native, H5VL_GET_CONN_LVL_CURR, &found);
    return status >= 0 && found && found->version == vol_version ? found : nullptr;
}

herr_t initialize(Host &host)
{
    ErrorStackKeeper keep(host);
    host.native = host.hdf5.H5VLregister_connector_by_value(native_connector_value, 0);
    host.native_wrap_context = {&host, host.native, nullptr};
    if (host.native < 0) return -1;
    host.native_class = native_class(host);
    return 0;
}

herr_t terminate(Host &host)
{
    ErrorStackKeeper keep(host);
    flush_trace();
    if (host.native >= 0) host.hdf5.H5VLclose(host.native);
    host.native = -1;
    host.native_class = nullptr;
    host.closes_replicas = host.is_ending = false;
    return 0;
}

// One instance per slot: HDF5 passes these callbacks nothing that would tell which library calls.
template <int slot> struct SlotCallbacks {
    static Host &host() { return host_at(slot); }
    static herr_t initialize(hid_t) { return vol::initialize(host()); }
    static herr_t terminate() { return vol::terminate(host()); }
    static herr_t info_from_text(const char *text, void **info)
    {
        return vol::info_from_text(host(), text, info);
    }
    static void *file_create(const char *name, unsigned flags, hid_t fcpl, hid_t fapl, hid_t dxpl,
                             void **)
    {
        return vol::file_create(host(), name, flags, fcpl, fapl, dxpl);
    }
    static void *file_open(const char *name, unsigned flags, hid_t fapl, hid_t dxpl, void **)
    {
        return vol::file_open(host(), name, flags, fapl, dxpl);
    }
    static herr_t file_specific(void *file, H5VL_file_specific_args_t *args, hid_t dxpl, void **)
    {
        return vol::file_specific(host(), file, args, dxpl);
    }
    static herr_t link_create(H5VL_link_create_args_t *args, void *object,
                              const H5VL_loc_params_t *location, hid_t lcpl, hid_t lapl, hid_t dxpl,
                              void **)
    {
        return vol::link_create(host(), args, object, location, lcpl, lapl, dxpl);
    }
    static herr_t get_connector_class(void *object, H5VL_get_conn_lvl_t level,
                                      const H5VL_class_t **found)
    {
        return vol::get_connector_class(host(), object, level, found);
    }
    static herr_t get_capabilities(const void *info, uint64_t *flags)
    {
        return vol::get_capabilities(host(), info, flags);
    }
    static herr_t query_optional(void *object, H5VL_subclass_t subclass, int operation,
                                 uint64_t *flags)
    {
        return vol::query_optional(host(), object, subclass, operation, flags);
    }

    static void fill(H5VL_class_t &connector)
    {
        connector.initialize = initialize;
        connector.terminate = terminate;
        connector.info_cls.from_str = info_from_text;
        connector.file_cls.create = file_create;
        connector.file_cls.open = file_open;
        connector.file_cls.specific = file_specific;
        connector.link_cls.create = link_create;
        connector.introspect_cls.get_conn_cls = get_connector_class;
        connector.introspect_cls.get_cap_flags = get_capabilities;
        connector.introspect_cls.opt_query = query_optional;
    }
};

using Fill = void (*)(H5VL_class_t &);
constexpr Fill fill_slot[max_hosts] = {
    SlotCallbacks<0>::fill, SlotCallbacks<1>::fill, SlotCallbacks<2>::fill, SlotCallbacks<3>::fill,
    SlotCallbacks<4>::fill, SlotCallbacks<5>::fill, SlotCallbacks<6>::fill, SlotCallbacks<7>::fill};

} // namespace

void fill_class(Host &host)
{
    H5VL_class_t &connector = host.connector_class;
    memset(static_cast<void *>(&connector), 0, sizeof connector);
    connector.version = vol_version;
    connector.value = connector_value;
    connector.name = connector_name;
    connector.conn_version = connector_version;
    connector.cap_flags = capabilities();
    fill_info_class(connector.info_cls);
    fill_wrap_class(connector.wrap_cls);
    fill_attr_class(connector.attr_cls);
    fill_dataset_class(connector.dataset_cls);
    fill_datatype_class(connector.datatype_cls);
    fill_file_class(connector.file_cls);
    fill_group_class(connector.group_cls);
    fill_link_class(connector.link_cls);
    fill_object_class(connector.object_cls);
    fill_blob_class(connector.blob_cls);
    fill_token_class(connector.token_cls);
    connector.optional = any_optional;
    // No request class: the connector asks the one below to finish every operation before it
    // returns (a null request), which HDF5 takes as done at once.
    fill_slot[host.slot](connector);
}

} // namespace sds::vol
