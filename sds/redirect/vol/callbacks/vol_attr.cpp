// Attributes: passed on.
#include "object.h"
#include "open_file.h"
#include "operation.h"
#include "pass_on.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

// H5VL_attr_specific_t: the operations that only look
constexpr int attr_exists = 2;
constexpr int attr_iterate = 3;

void *create(void *object, const H5VL_loc_params_t *location, const char *name, hid_t type,
             hid_t space, hid_t acpl, hid_t aapl, hid_t dxpl, void **)
{
    const Handle self_handle(object);
    Object &self = *self_handle;
    before_write(self, location->obj_type);
    return wrap_beside(self, pass_on_at(self, location, self.below->attr_cls.create,
                                        self.hdf5().H5VLattr_create, name, type, space, acpl, aapl,
                                        dxpl, nullptr));
}

void *open(void *object, const H5VL_loc_params_t *location, const char *name, hid_t aapl,
           hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return wrap_beside(self, pass_on_at(self, location, self.below->attr_cls.open,
                                        self.hdf5().H5VLattr_open, name, aapl, dxpl, nullptr));
}

herr_t read(void *attr, hid_t memory_type, void *buffer, hid_t dxpl, void **)
{
    const Handle self_handle(attr);
    const Object &self = *self_handle;
    return pass_on(self, self.below->attr_cls.read, self.hdf5().H5VLattr_read, memory_type, buffer,
                   dxpl, nullptr);
}

herr_t write(void *attr, hid_t memory_type, const void *buffer, hid_t dxpl, void **)
{
    const Handle self_handle(attr);
    Object &self = *self_handle;
    before_write(self, H5I_ATTR);
    return pass_on(self, self.below->attr_cls.write, self.hdf5().H5VLattr_write, memory_type,
                   buffer, dxpl, nullptr);
}

herr_t get(void *object, H5VL_attr_get_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return pass_on(self, self.below->attr_cls.get, self.hdf5().H5VLattr_get, args, dxpl, nullptr);
}

herr_t specific(void *object, const H5VL_loc_params_t *location, H5VL_attr_specific_args_t *args,
                hid_t dxpl, void **)
{
    const Handle self_handle(object);
    Object &self = *self_handle;
    const int operation = operation_of(args);
    if (operation != attr_exists && operation != attr_iterate)
        before_write(self, location->obj_type);
    return pass_on_at(self, location, self.below->attr_cls.specific, self.hdf5().H5VLattr_specific,
                      args, dxpl, nullptr);
}

herr_t optional(void *object, H5VL_optional_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return pass_on(self, self.below->attr_cls.optional, self.hdf5().H5VLattr_optional, args, dxpl,
                   nullptr);
}

herr_t close(void *attr, hid_t dxpl, void **)
{
    Handle self(attr);
    const herr_t result =
        pass_on(*self, self->below->attr_cls.close, self->hdf5().H5VLattr_close, dxpl, nullptr);
    if (result >= 0) self.release();
    return result;
}

} // namespace

void fill_attr_class(H5VL_attr_class_t &attr_class)
{
    attr_class = {create, open, read, write, get, specific, optional, close};
}

} // namespace sds::vol
