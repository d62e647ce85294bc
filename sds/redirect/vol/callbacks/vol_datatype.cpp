// Committed datatypes: passed on.
#include "object.h"
#include "open_file.h"
#include "pass_on.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

void *commit(void *object, const H5VL_loc_params_t *location, const char *name, hid_t type,
             hid_t lcpl, hid_t tcpl, hid_t tapl, hid_t dxpl, void **)
{
    const Handle self_handle(object);
    Object &self = *self_handle;
    before_write(self, location->obj_type);
    return wrap_beside(self, pass_on_at(self, location, self.below->datatype_cls.commit,
                                        self.hdf5().H5VLdatatype_commit, name, type, lcpl, tcpl,
                                        tapl, dxpl, nullptr));
}

void *open(void *object, const H5VL_loc_params_t *location, const char *name, hid_t tapl,
           hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return wrap_beside(self, pass_on_at(self, location, self.below->datatype_cls.open,
                                        self.hdf5().H5VLdatatype_open, name, tapl, dxpl, nullptr));
}

herr_t get(void *datatype, H5VL_datatype_get_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(datatype);
    const Object &self = *self_handle;
    return pass_on(self, self.below->datatype_cls.get, self.hdf5().H5VLdatatype_get, args, dxpl,
                   nullptr);
}

herr_t specific(void *datatype, H5VL_datatype_specific_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(datatype);
    const Object &self = *self_handle;
    return pass_on(self, self.below->datatype_cls.specific, self.hdf5().H5VLdatatype_specific, args,
                   dxpl, nullptr);
}

herr_t optional(void *datatype, H5VL_optional_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(datatype);
    const Object &self = *self_handle;
    return pass_on(self, self.below->datatype_cls.optional, self.hdf5().H5VLdatatype_optional, args,
                   dxpl, nullptr);
}

herr_t close(void *datatype, hid_t dxpl, void **)
{
    Handle self(datatype);
    const herr_t result = pass_on(*self, self->below->datatype_cls.close,
                                  self->hdf5().H5VLdatatype_close, dxpl, nullptr);
    if (result >= 0) self.release();
    return result;
}

} // namespace

void fill_datatype_class(H5VL_datatype_class_t &datatype_class)
{
    datatype_class = {commit, open, get, specific, optional, close};
}

} // namespace sds::vol
