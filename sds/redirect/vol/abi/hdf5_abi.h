// The binary interface of HDF5's virtual object layer, version 3 (HDF5 1.14, 2.0, 2.2).
//
// Own declarations, so that the connector builds on a machine without HDF5 and serves whichever
// HDF5 loads it. Declared is what the connector looks into; what it only forwards stays void.
// tests/vol/test_abi.py compiles abi_layout.cpp with them and, by SDS_REAL_HDF5_HEADERS, with the
// real headers of three versions, and compares sizes, offsets and how functions are called.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef SDS_REAL_HDF5_HEADERS
#include <hdf5.h>

#include <H5VLconnector.h>
#include <H5VLconnector_passthru.h>
#include <H5VLnative.h>
#else

using hid_t = int64_t;
using herr_t = int;
using htri_t = int;
using hsize_t = uint64_t;
using hssize_t = int64_t;
using haddr_t = uint64_t;

enum H5I_type_t {
    H5I_UNINIT = -2,
    H5I_BADID = -1,
    H5I_FILE = 1,
    H5I_GROUP,
    H5I_DATATYPE,
    H5I_DATASPACE,
    H5I_DATASET,
    H5I_MAP,
    H5I_ATTR
};

// ---- arguments that are only forwarded
using H5O_token_t = void;
using H5VL_attr_get_args_t = void;
using H5VL_attr_specific_args_t = void;
using H5VL_blob_specific_args_t = void;
using H5VL_datatype_get_args_t = void;
using H5VL_datatype_specific_args_t = void;
using H5VL_group_get_args_t = void;
using H5VL_link_get_args_t = void;
using H5VL_link_specific_args_t = void;
using H5VL_object_specific_args_t = void;
using H5VL_request_specific_args_t = void;
using H5VL_class_value_t = int;
using H5VL_get_conn_lvl_t = int;
using H5VL_request_status_t = int;
using H5VL_subclass_t = int;
using H5VL_request_notify_t = herr_t (*)(void *context, H5VL_request_status_t status);
constexpr H5VL_get_conn_lvl_t H5VL_GET_CONN_LVL_CURR = 0;

// ---- arguments that the connector reads, writes or unwraps
enum H5VL_loc_type_t {
    H5VL_OBJECT_BY_SELF,
    H5VL_OBJECT_BY_NAME,
    H5VL_OBJECT_BY_IDX,
    H5VL_OBJECT_BY_TOKEN
};

struct H5VL_loc_params_t {
    H5I_type_t obj_type;
    H5VL_loc_type_t type;
    union {
        struct {
            H5O_token_t *token;
        } loc_by_token;
        struct {
            const char *name;
            hid_t lapl_id;
        } loc_by_name;
        struct {
            const char *name;
            int idx_type;
            int order;
            hsize_t n;
            hid_t lapl_id;
        } loc_by_idx;
    } loc_data;
};

struct H5VL_optional_args_t {
    int op_type;
    void *args;
};

enum H5VL_file_specific_t {
    H5VL_FILE_FLUSH,
    H5VL_FILE_REOPEN,
    H5VL_FILE_IS_ACCESSIBLE,
    H5VL_FILE_DELETE,
    H5VL_FILE_IS_EQUAL
};

struct H5VL_file_specific_args_t {
    H5VL_file_specific_t op_type;
    union {
        struct {
            H5I_type_t obj_type;
            int scope;
        } flush;
        struct {
            void **file;
        } reopen;
        struct {
            const char *filename;
            hid_t fapl_id;
            bool *accessible;
        } is_accessible;
        struct {
            const char *filename;
            hid_t fapl_id;
        } del;
        struct {
            void *obj2;
            bool *same_file;
        } is_equal;
    } args;
};

enum H5VL_file_get_t {
    H5VL_FILE_GET_CONT_INFO,
    H5VL_FILE_GET_FAPL,
    H5VL_FILE_GET_FCPL,
    H5VL_FILE_GET_FILENO,
    H5VL_FILE_GET_INTENT,
    H5VL_FILE_GET_NAME,
    H5VL_FILE_GET_OBJ_COUNT,
    H5VL_FILE_GET_OBJ_IDS
};

struct H5VL_file_get_args_t {
    H5VL_file_get_t op_type;
    union {
        struct {
            unsigned long *fileno;
        } get_fileno;
        struct {
            unsigned *flags;
        } get_intent;
        struct {
            H5I_type_t type;
            size_t buf_size;
            char *buf;
            size_t *file_name_len;
        } get_name;
        struct {
            unsigned types;
            size_t max_objs;
            hid_t *oid_list;
            size_t *count;
        } get_obj_ids;
    } args;
};

enum H5VL_group_specific_t {
    H5VL_GROUP_MOUNT,
    H5VL_GROUP_UNMOUNT,
    H5VL_GROUP_FLUSH,
    H5VL_GROUP_REFRESH
};

struct H5VL_group_specific_args_t {
    H5VL_group_specific_t op_type;
    union {
        struct {
            const char *name;
            void *child_file;
            hid_t fmpl_id;
        } mount;
    } args;
};

enum H5VL_link_create_t { H5VL_LINK_CREATE_HARD, H5VL_LINK_CREATE_SOFT, H5VL_LINK_CREATE_UD };

struct H5VL_link_create_args_t {
    H5VL_link_create_t op_type;
    union {
        struct {
            void *curr_obj;
            H5VL_loc_params_t curr_loc_params;
        } hard;
        struct {
            const char *target;
        } soft;
        struct {
            int type;
            const void *buf;
            size_t buf_size;
        } ud;
    } args;
};

enum H5VL_object_get_t {
    H5VL_OBJECT_GET_FILE,
    H5VL_OBJECT_GET_NAME,
    H5VL_OBJECT_GET_TYPE,
    H5VL_OBJECT_GET_INFO
};

// What H5VL_OBJECT_GET_INFO fills in.
struct H5O_info2_t {
    unsigned long fileno;
    unsigned char token[16];
    char rest[488];
};

struct H5VL_object_get_args_t {
    H5VL_object_get_t op_type;
    union {
        struct {
            void **file;
        } get_file;
        struct {
            size_t buf_size;
            char *buf;
            size_t *name_len;
        } get_name;
        struct {
            unsigned fields;
            void *oinfo;
        } get_info;
    } args;
};

enum H5VL_dataset_get_t {
    H5VL_DATASET_GET_DAPL,
    H5VL_DATASET_GET_DCPL,
    H5VL_DATASET_GET_SPACE,
    H5VL_DATASET_GET_SPACE_STATUS,
    H5VL_DATASET_GET_STORAGE_SIZE,
    H5VL_DATASET_GET_TYPE
};

struct H5VL_dataset_get_args_t {
    H5VL_dataset_get_t op_type;
    union {
        struct {
            hid_t dapl_id;
        } get_dapl;
        struct {
            hid_t dcpl_id;
        } get_dcpl;
        struct {
            hid_t space_id;
        } get_space;
        struct {
            hid_t type_id;
        } get_type;
    } args;
};

enum H5VL_dataset_specific_t { H5VL_DATASET_SET_EXTENT, H5VL_DATASET_FLUSH, H5VL_DATASET_REFRESH };

struct H5VL_dataset_specific_args_t {
    H5VL_dataset_specific_t op_type;
    union {
        struct {
            const hsize_t *size;
        } set_extent;
        struct {
            hid_t dset_id;
        } flush;
    } args;
};

// ---- what HDF5 knows of a conversion between two datatypes
enum H5T_bkg_t { H5T_BKG_NO, H5T_BKG_TEMP, H5T_BKG_YES };

struct H5T_cdata_t {
    int command;
    H5T_bkg_t need_bkg;
    bool recalc;
    void *priv;
};

// ---- the class struct that an HDF5 library takes from a plugin
struct H5VL_info_class_t {
    size_t size;
    void *(*copy)(const void *);
    herr_t (*cmp)(int *, const void *, const void *);
    herr_t (*free)(void *);
    herr_t (*to_str)(const void *, char **);
    herr_t (*from_str)(const char *, void **);
};

struct H5VL_wrap_class_t {
    void *(*get_object)(const void *);
    herr_t (*get_wrap_ctx)(const void *, void **);
    void *(*wrap_object)(void *, H5I_type_t, void *);
    void *(*unwrap_object)(void *);
    herr_t (*free_wrap_ctx)(void *);
};

struct H5VL_attr_class_t {
    void *(*create)(void *, const H5VL_loc_params_t *, const char *, hid_t, hid_t, hid_t, hid_t,
                    hid_t, void **);
    void *(*open)(void *, const H5VL_loc_params_t *, const char *, hid_t, hid_t, void **);
    herr_t (*read)(void *, hid_t, void *, hid_t, void **);
    herr_t (*write)(void *, hid_t, const void *, hid_t, void **);
    herr_t (*get)(void *, H5VL_attr_get_args_t *, hid_t, void **);
    herr_t (*specific)(void *, const H5VL_loc_params_t *, H5VL_attr_specific_args_t *, hid_t,
                       void **);
    herr_t (*optional)(void *, H5VL_optional_args_t *, hid_t, void **);
    herr_t (*close)(void *, hid_t, void **);
};

struct H5VL_dataset_class_t {
    void *(*create)(void *, const H5VL_loc_params_t *, const char *, hid_t, hid_t, hid_t, hid_t,
                    hid_t, hid_t, void **);
    void *(*open)(void *, const H5VL_loc_params_t *, const char *, hid_t, hid_t, void **);
    herr_t (*read)(size_t, void *[], hid_t[], hid_t[], hid_t[], hid_t, void *[], void **);
    herr_t (*write)(size_t, void *[], hid_t[], hid_t[], hid_t[], hid_t, const void *[], void **);
    herr_t (*get)(void *, H5VL_dataset_get_args_t *, hid_t, void **);
    herr_t (*specific)(void *, H5VL_dataset_specific_args_t *, hid_t, void **);
    herr_t (*optional)(void *, H5VL_optional_args_t *, hid_t, void **);
    herr_t (*close)(void *, hid_t, void **);
};

struct H5VL_datatype_class_t {
    void *(*commit)(void *, const H5VL_loc_params_t *, const char *, hid_t, hid_t, hid_t, hid_t,
                    hid_t, void **);
    void *(*open)(void *, const H5VL_loc_params_t *, const char *, hid_t, hid_t, void **);
    herr_t (*get)(void *, H5VL_datatype_get_args_t *, hid_t, void **);
    herr_t (*specific)(void *, H5VL_datatype_specific_args_t *, hid_t, void **);
    herr_t (*optional)(void *, H5VL_optional_args_t *, hid_t, void **);
    herr_t (*close)(void *, hid_t, void **);
};

struct H5VL_file_class_t {
    void *(*create)(const char *, unsigned, hid_t, hid_t, hid_t, void **);
    void *(*open)(const char *, unsigned, hid_t, hid_t, void **);
    herr_t (*get)(void *, H5VL_file_get_args_t *, hid_t, void **);
    herr_t (*specific)(void *, H5VL_file_specific_args_t *, hid_t, void **);
    herr_t (*optional)(void *, H5VL_optional_args_t *, hid_t, void **);
    herr_t (*close)(void *, hid_t, void **);
};

struct H5VL_group_class_t {
    void *(*create)(void *, const H5VL_loc_params_t *, const char *, hid_t, hid_t, hid_t, hid_t,
                    void **);
    void *(*open)(void *, const H5VL_loc_params_t *, const char *, hid_t, hid_t, void **);
    herr_t (*get)(void *, H5VL_group_get_args_t *, hid_t, void **);
    herr_t (*specific)(void *, H5VL_group_specific_args_t *, hid_t, void **);
    herr_t (*optional)(void *, H5VL_optional_args_t *, hid_t, void **);
    herr_t (*close)(void *, hid_t, void **);
};

struct H5VL_link_class_t {
    herr_t (*create)(H5VL_link_create_args_t *, void *, const H5VL_loc_params_t *, hid_t, hid_t,
                     hid_t, void **);
    herr_t (*copy)(void *, const H5VL_loc_params_t *, void *, const H5VL_loc_params_t *, hid_t,
                   hid_t, hid_t, void **);
    herr_t (*move)(void *, const H5VL_loc_params_t *, void *, const H5VL_loc_params_t *, hid_t,
                   hid_t, hid_t, void **);
    herr_t (*get)(void *, const H5VL_loc_params_t *, H5VL_link_get_args_t *, hid_t, void **);
    herr_t (*specific)(void *, const H5VL_loc_params_t *, H5VL_link_specific_args_t *, hid_t,
                       void **);
    herr_t (*optional)(void *, const H5VL_loc_params_t *, H5VL_optional_args_t *, hid_t, void **);
};

struct H5VL_object_class_t {
    void *(*open)(void *, const H5VL_loc_params_t *, H5I_type_t *, hid_t, void **);
    herr_t (*copy)(void *, const H5VL_loc_params_t *, const char *, void *,
                   const H5VL_loc_params_t *, const char *, hid_t, hid_t, hid_t, void **);
    herr_t (*get)(void *, const H5VL_loc_params_t *, H5VL_object_get_args_t *, hid_t, void **);
    herr_t (*specific)(void *, const H5VL_loc_params_t *, H5VL_object_specific_args_t *, hid_t,
                       void **);
    herr_t (*optional)(void *, const H5VL_loc_params_t *, H5VL_optional_args_t *, hid_t, void **);
};

struct H5VL_class_t;

struct H5VL_introspect_class_t {
    herr_t (*get_conn_cls)(void *, H5VL_get_conn_lvl_t, const H5VL_class_t **);
    herr_t (*get_cap_flags)(const void *, uint64_t *);
    herr_t (*opt_query)(void *, H5VL_subclass_t, int, uint64_t *);
};

struct H5VL_request_class_t {
    herr_t (*wait)(void *, uint64_t, H5VL_request_status_t *);
    herr_t (*notify)(void *, H5VL_request_notify_t, void *);
    herr_t (*cancel)(void *, H5VL_request_status_t *);
    herr_t (*specific)(void *, H5VL_request_specific_args_t *);
    herr_t (*optional)(void *, H5VL_optional_args_t *);
    herr_t (*free)(void *);
};

struct H5VL_blob_class_t {
    herr_t (*put)(void *, const void *, size_t, void *, void *);
    herr_t (*get)(void *, const void *, void *, size_t, void *);
    herr_t (*specific)(void *, void *, H5VL_blob_specific_args_t *);
    herr_t (*optional)(void *, void *, H5VL_optional_args_t *);
};

struct H5VL_token_class_t {
    herr_t (*cmp)(void *, const H5O_token_t *, const H5O_token_t *, int *);
    herr_t (*to_str)(void *, H5I_type_t, const H5O_token_t *, char **);
    herr_t (*from_str)(void *, H5I_type_t, const char *, H5O_token_t *);
};

struct H5VL_class_t {
    unsigned version;
    H5VL_class_value_t value;
    const char *name;
    unsigned conn_version;
    uint64_t cap_flags;
    herr_t (*initialize)(hid_t);
    herr_t (*terminate)(void);
    H5VL_info_class_t info_cls;
    H5VL_wrap_class_t wrap_cls;
    H5VL_attr_class_t attr_cls;
    H5VL_dataset_class_t dataset_cls;
    H5VL_datatype_class_t datatype_cls;
    H5VL_file_class_t file_cls;
    H5VL_group_class_t group_cls;
    H5VL_link_class_t link_cls;
    H5VL_object_class_t object_cls;
    H5VL_introspect_class_t introspect_cls;
    H5VL_request_class_t request_cls;
    H5VL_blob_class_t blob_cls;
    H5VL_token_class_t token_cls;
    herr_t (*optional)(void *, H5VL_optional_args_t *, hid_t, void **);
};

// What the native connector's operations on chunks are told, and tell.
struct H5VL_native_dataset_get_chunk_storage_size_t {
    const hsize_t *offset;
    hsize_t *size;
};

struct H5VL_native_dataset_chunk_read_t {
    const hsize_t *offset;
    uint32_t filters;
    void *buf;
    size_t *buf_size; // of 2.x; 1.14 does not look at it
};

// Values of public macros.
constexpr hid_t H5S_ALL = 0;
constexpr unsigned H5F_ACC_RDWR = 0x1;
constexpr unsigned H5F_ACC_SWMR_READ = 0x40;
constexpr int H5VL_NATIVE_DATASET_GET_CHUNK_INDEX_TYPE = 1;
constexpr int H5VL_NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE = 2;
constexpr int H5VL_NATIVE_DATASET_CHUNK_READ = 6;
constexpr int H5VL_NATIVE_DATASET_CHUNK_WRITE = 7;
constexpr int H5VL_NATIVE_DATASET_GET_OFFSET = 9;
constexpr int H5VL_NATIVE_FILE_GET_VFD_HANDLE = 9;
constexpr int H5VL_NATIVE_FILE_GET_EOA = 21;
#endif

namespace sds::vol
{
constexpr unsigned vol_version = 3;       // H5VL_VERSION
constexpr int native_connector_value = 0; // H5_VOL_NATIVE
constexpr int plugin_type_vol = 1;        // H5PL_TYPE_VOL
} // namespace sds::vol
