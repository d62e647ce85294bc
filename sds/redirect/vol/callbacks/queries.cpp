#include "queries.h"

#include "pass_on.h"

namespace sds::vol
{
namespace
{

// Have the native connector write one value behind a pointer that its arguments hold.
template <typename Arguments>
bool get_native(const Object &file, int operation, const Arguments &arguments)
{
    struct {
        Arguments arguments;
        char room[120]; // the native connector's union of all optional operations
    } request;
    if (file.connector != file.host->native) return false;
    memset(static_cast<void *>(&request), 0, sizeof request);
    request.arguments = arguments;
    H5VL_optional_args_t args = {operation, &request};
    return pass_on(file, file.below->file_cls.optional, file.hdf5().H5VLfile_optional, &args,
                   *file.host->default_dxpl, nullptr) >= 0;
}

} // namespace

bool read_file_name(const Object &object, H5I_type_t type, char *name)
{
    size_t length = 0;
    Request<H5VL_file_get_args_t> request(H5VL_FILE_GET_NAME);
    request.args.args.get_name.type = type;
    request.args.args.get_name.buf_size = PATH_MAX;
    request.args.args.get_name.buf = name;
    request.args.args.get_name.file_name_len = &length;
    return pass_on(object, object.below->file_cls.get, object.hdf5().H5VLfile_get, &request.args,
                   *object.host->default_dxpl, nullptr) >= 0 &&
           length < PATH_MAX;
}

int descriptor_of(const Object &file)
{
    struct Arguments {
        hid_t fapl;
        void **handle;
    };
    void *handle = nullptr;
    return get_native(file, H5VL_NATIVE_FILE_GET_VFD_HANDLE, Arguments{0, &handle}) && handle
               ? *static_cast<const int *>(handle)
               : -1;
}

int64_t allocated_end_of(const Object &file)
{
    haddr_t end = 0;
    return get_native(file, H5VL_NATIVE_FILE_GET_EOA, &end) && end <= INT64_MAX
               ? static_cast<int64_t>(end)
               : 0;
}

bool chunk_cache_of(const Object &dataset, size_t &n_slots, size_t &n_bytes)
{
    const Functions &hdf5 = dataset.hdf5();
    if (!hdf5.H5Pget_chunk_cache) return false;
    Request<H5VL_dataset_get_args_t> request(H5VL_DATASET_GET_DAPL);
    if (pass_on(dataset, dataset.below->dataset_cls.get, hdf5.H5VLdataset_get, &request.args,
                *dataset.host->default_dxpl, nullptr) < 0)
        return false;
    const hid_t dapl = request.args.args.get_dapl.dapl_id;
    const bool is_known = hdf5.H5Pget_chunk_cache(dapl, &n_slots, &n_bytes, nullptr) >= 0;
    hdf5.H5Pclose(dapl);
    return is_known;
}

} // namespace sds::vol
