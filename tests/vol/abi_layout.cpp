// Prints the size and the offset of everything the connector looks into, and what every function
// that it calls or stands in for takes and returns, from its own declarations or
// (SDS_REAL_HDF5_HEADERS) from HDF5's. test_abi.py compares the two.
#include "hdf5_abi.h"

#include <cstddef>
#include <cstdio>
#include <type_traits>

#ifdef SDS_REAL_HDF5_HEADERS
// HDF5 1.14 calls these wherever one of its constants is used.
extern "C" herr_t H5open(void)
{
    return 0;
}
extern "C" herr_t H5check_version(unsigned, unsigned, unsigned)
{
    return 0;
}
#endif

#define SIZE(type) std::printf("%s %zu\n", #type, sizeof(type))
#define AT(type, member) std::printf("%s.%s %zu\n", #type, #member, offsetof(type, member))
#define VALUE(name) std::printf("%s %lld\n", #name, static_cast<long long>(name))
#define FUNCTION(name) print_passing(#name, static_cast<decltype(&name)>(nullptr))
#define CALLBACK(type, member) print_passing(#type "." #member, decltype(type::member)(nullptr))

// How a value is passed: what an enumeration is called and what a pointer leads to make no
// difference to the machine.
template <typename T> void print_kind()
{
    const char *kind = std::is_void<T>::value                                 ? "void"
                       : std::is_pointer<T>::value                            ? "pointer"
                       : std::is_floating_point<T>::value                     ? "float"
                       : std::is_same<T, bool>::value                         ? "bool"
                       : std::is_enum<T>::value || std::is_integral<T>::value ? "integer"
                                                                              : "structure";
    using Sized = std::conditional_t<std::is_void<T>::value, char, T>;
    std::printf(" %s%zu", kind, sizeof(Sized));
}

template <typename Result, typename... Arguments>
void print_passing(const char *name, Result (*)(Arguments...))
{
    std::printf("%s", name);
    print_kind<Result>();
    (print_kind<Arguments>(), ...);
    std::printf("\n");
}

// In the connector's own declarations the functions are those of the one list of them.
#ifndef SDS_REAL_HDF5_HEADERS
#define REQUIRED(result, name, arguments) result name arguments;
#define OPTIONAL REQUIRED
#include "hdf5_functions.inc"
#undef REQUIRED
#undef OPTIONAL
#endif

int main()
{
    SIZE(hid_t), SIZE(herr_t), SIZE(htri_t), SIZE(hsize_t), SIZE(hssize_t), SIZE(haddr_t);
    SIZE(H5VL_class_t);
    AT(H5VL_class_t, version), AT(H5VL_class_t, value), AT(H5VL_class_t, name);
    AT(H5VL_class_t, conn_version), AT(H5VL_class_t, cap_flags), AT(H5VL_class_t, initialize);
    AT(H5VL_class_t, terminate), AT(H5VL_class_t, info_cls), AT(H5VL_class_t, wrap_cls);
    AT(H5VL_class_t, attr_cls), AT(H5VL_class_t, dataset_cls), AT(H5VL_class_t, datatype_cls);
    AT(H5VL_class_t, file_cls), AT(H5VL_class_t, group_cls), AT(H5VL_class_t, link_cls);
    AT(H5VL_class_t, object_cls), AT(H5VL_class_t, introspect_cls), AT(H5VL_class_t, request_cls);
    AT(H5VL_class_t, blob_cls), AT(H5VL_class_t, token_cls), AT(H5VL_class_t, optional);
    AT(H5VL_info_class_t, from_str), AT(H5VL_wrap_class_t, free_wrap_ctx);
    AT(H5VL_attr_class_t, close), AT(H5VL_dataset_class_t, read), AT(H5VL_dataset_class_t, close);
    AT(H5VL_datatype_class_t, close), AT(H5VL_file_class_t, open), AT(H5VL_file_class_t, close);
    AT(H5VL_group_class_t, close), AT(H5VL_link_class_t, optional);
    AT(H5VL_object_class_t, optional), AT(H5VL_introspect_class_t, opt_query);
    AT(H5VL_blob_class_t, optional), AT(H5VL_token_class_t, from_str);

    SIZE(H5VL_loc_params_t), AT(H5VL_loc_params_t, type), AT(H5VL_loc_params_t, loc_data);
    SIZE(H5VL_optional_args_t), AT(H5VL_optional_args_t, args);
    AT(H5VL_file_specific_args_t, args), AT(H5VL_file_specific_args_t, args.reopen.file);
    AT(H5VL_file_specific_args_t, args.is_accessible.fapl_id);
    AT(H5VL_file_specific_args_t, args.del.fapl_id), AT(H5VL_file_specific_args_t, args.is_equal);
    AT(H5VL_file_get_args_t, args.get_name.type), AT(H5VL_file_get_args_t, args.get_name.buf);
    AT(H5VL_file_get_args_t, args.get_name.file_name_len);
    AT(H5VL_file_get_args_t, args.get_fileno.fileno);
    AT(H5VL_group_specific_args_t, args.mount.child_file);
    AT(H5VL_link_create_args_t, args.hard.curr_obj), SIZE(H5VL_link_create_args_t);
    AT(H5VL_object_get_args_t, args.get_name.buf),
        AT(H5VL_object_get_args_t, args.get_name.name_len);
    AT(H5VL_object_get_args_t, args.get_info.fields),
        AT(H5VL_object_get_args_t, args.get_info.oinfo);
    AT(H5O_info2_t, fileno), AT(H5O_info2_t, token);
    AT(H5VL_dataset_get_args_t, args.get_dcpl), AT(H5VL_dataset_get_args_t, args.get_space);
    AT(H5VL_dataset_get_args_t, args.get_type);
    SIZE(H5VL_native_dataset_get_chunk_storage_size_t);
    AT(H5VL_native_dataset_get_chunk_storage_size_t, offset),
        AT(H5VL_native_dataset_get_chunk_storage_size_t, size);
    AT(H5VL_native_dataset_chunk_read_t, offset), AT(H5VL_native_dataset_chunk_read_t, filters);
    AT(H5VL_native_dataset_chunk_read_t, buf);
    SIZE(H5T_cdata_t), AT(H5T_cdata_t, need_bkg), AT(H5T_cdata_t, recalc);
    // The library writes results of every operation into these: ours must be no smaller than the
    // members that the connector asks for, which the offsets above show.

#include "functions_to_compare.inc"

    VALUE(H5I_FILE), VALUE(H5I_DATASET), VALUE(H5I_ATTR), VALUE(H5VL_OBJECT_BY_SELF);
    VALUE(H5VL_FILE_REOPEN), VALUE(H5VL_FILE_IS_ACCESSIBLE), VALUE(H5VL_FILE_DELETE);
    VALUE(H5VL_FILE_IS_EQUAL), VALUE(H5VL_FILE_GET_NAME), VALUE(H5VL_FILE_GET_FILENO),
        VALUE(H5VL_OBJECT_GET_INFO), VALUE(H5VL_GROUP_MOUNT);
    VALUE(H5VL_LINK_CREATE_HARD), VALUE(H5VL_OBJECT_GET_NAME), VALUE(H5VL_DATASET_GET_DCPL);
    VALUE(H5VL_DATASET_GET_SPACE), VALUE(H5VL_DATASET_GET_TYPE), VALUE(H5VL_DATASET_SET_EXTENT);
    VALUE(H5VL_DATASET_FLUSH), VALUE(H5VL_DATASET_REFRESH), VALUE(H5VL_GET_CONN_LVL_CURR);
    VALUE(H5VL_NATIVE_DATASET_GET_OFFSET), VALUE(H5VL_NATIVE_DATASET_GET_CHUNK_INDEX_TYPE),
        VALUE(H5VL_NATIVE_DATASET_CHUNK_WRITE), VALUE(H5VL_NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE),
        VALUE(H5VL_NATIVE_DATASET_CHUNK_READ), VALUE(H5VL_NATIVE_FILE_GET_VFD_HANDLE),
        VALUE(H5VL_NATIVE_FILE_GET_EOA);
    VALUE(H5T_BKG_NO), VALUE(H5T_BKG_TEMP), VALUE(H5T_BKG_YES);
    VALUE(H5S_ALL), VALUE(H5F_ACC_RDWR), VALUE(H5F_ACC_SWMR_READ);
#ifdef SDS_REAL_HDF5_HEADERS
    VALUE(H5VL_VERSION);
#else
    std::printf("H5VL_VERSION %u\n", sds::vol::vol_version);
#endif
}
