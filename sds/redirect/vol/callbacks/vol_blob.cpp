// Blobs (variable-length data and references): passed on.
#include "object.h"
#include "pass_on.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

herr_t put(void *file, const void *bytes, size_t size, void *blob_id, void *context)
{
    const Handle self_handle(file);
    const Object &self = *self_handle;
    return pass_on(self, self.below->blob_cls.put, self.hdf5().H5VLblob_put, bytes, size, blob_id,
                   context);
}

herr_t get(void *file, const void *blob_id, void *bytes, size_t size, void *context)
{
    const Handle self_handle(file);
    const Object &self = *self_handle;
    return pass_on(self, self.below->blob_cls.get, self.hdf5().H5VLblob_get, blob_id, bytes, size,
                   context);
}

herr_t specific(void *file, void *blob_id, H5VL_blob_specific_args_t *args)
{
    const Handle self_handle(file);
    const Object &self = *self_handle;
    return pass_on(self, self.below->blob_cls.specific, self.hdf5().H5VLblob_specific, blob_id,
                   args);
}

herr_t optional(void *file, void *blob_id, H5VL_optional_args_t *args)
{
    const Handle self_handle(file);
    const Object &self = *self_handle;
    return pass_on(self, self.below->blob_cls.optional, self.hdf5().H5VLblob_optional, blob_id,
                   args);
}

} // namespace

void fill_blob_class(H5VL_blob_class_t &blob_class)
{
    blob_class = {put, get, specific, optional};
}

} // namespace sds::vol
