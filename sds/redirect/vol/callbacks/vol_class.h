// The class struct that HDF5 takes from the plugin, and the pieces it is made of.
#pragma once

#include "host.h"

namespace sds::vol
{

// From HDF5's range for testing, 256 to 511, until a value is registered.
constexpr H5VL_class_value_t connector_value = 407;
constexpr const char *connector_name = "sds";
constexpr unsigned connector_version = 1;
// Of HDF5_VOL_CONNECTOR: the connector, and the native one below it.
constexpr const char *connector_variable = "sds under_vol=0;under_info={}";

// Fill host.connector_class, callbacks that come without an object bound to the host's slot.
void fill_class(Host &host);

// ---- callbacks that get an object, and find their host through it; one file per class
void fill_wrap_class(H5VL_wrap_class_t &wrap_class);
void fill_attr_class(H5VL_attr_class_t &attr_class);
void fill_dataset_class(H5VL_dataset_class_t &dataset_class);
void fill_datatype_class(H5VL_datatype_class_t &datatype_class);
void fill_file_class(H5VL_file_class_t &file_class);
void fill_group_class(H5VL_group_class_t &group_class);
void fill_link_class(H5VL_link_class_t &link_class);
void fill_object_class(H5VL_object_class_t &object_class);
void fill_blob_class(H5VL_blob_class_t &blob_class);
void fill_token_class(H5VL_token_class_t &token_class);
herr_t any_optional(void *object, H5VL_optional_args_t *args, hid_t dxpl, void **);

// ---- callbacks that may come without an object
void *file_create(Host &host, const char *name, unsigned flags, hid_t fcpl, hid_t fapl, hid_t dxpl);
void *file_open(Host &host, const char *name, unsigned flags, hid_t fapl, hid_t dxpl);
herr_t file_specific(Host &host, void *file, H5VL_file_specific_args_t *args, hid_t dxpl);
herr_t link_create(Host &host, H5VL_link_create_args_t *args, void *object,
                   const H5VL_loc_params_t *location, hid_t lcpl, hid_t lapl, hid_t dxpl);
herr_t get_connector_class(Host &host, void *object, H5VL_get_conn_lvl_t level,
                           const H5VL_class_t **found);
herr_t get_capabilities(Host &host, const void *info, uint64_t *flags);
herr_t query_optional(Host &host, void *object, H5VL_subclass_t subclass, int operation,
                      uint64_t *flags);

} // namespace sds::vol
