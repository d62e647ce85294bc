#include "queries.h"

#include "pass_on.h"

namespace sds::vol
{

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

} // namespace sds::vol
