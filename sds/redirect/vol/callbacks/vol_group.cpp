// Groups: passed on.
#include "object.h"
#include "open_file.h"
#include "pass_on.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

void *create(void *object, const H5VL_loc_params_t *location, const char *name, hid_t lcpl,
             hid_t gcpl, hid_t gapl, hid_t dxpl, void **)
{
    const Handle self_handle(object);
    Object &self = *self_handle;
    before_write(self, location->obj_type);
    return wrap_beside(self, pass_on_at(self, location, self.below->group_cls.create,
                                        self.hdf5().H5VLgroup_create, name, lcpl, gcpl, gapl, dxpl,
                                        nullptr));
}

void *open(void *object, const H5VL_loc_params_t *location, const char *name, hid_t gapl,
           hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return wrap_beside(self, pass_on_at(self, location, self.below->group_cls.open,
                                        self.hdf5().H5VLgroup_open, name, gapl, dxpl, nullptr));
}

herr_t get(void *group, H5VL_group_get_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(group);
    const Object &self = *self_handle;
    return pass_on(self, self.below->group_cls.get, self.hdf5().H5VLgroup_get, args, dxpl, nullptr);
}

herr_t specific(void *group, H5VL_group_specific_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(group);
    const Object &self = *self_handle;
    H5VL_group_specific_args_t passed_on = *args;
    if (args->op_type == H5VL_GROUP_MOUNT && args->args.mount.child_file) {
        remember_mount(*Handle(args->args.mount.child_file));
        passed_on.args.mount.child_file = under(args->args.mount.child_file);
    }
    return pass_on(self, self.below->group_cls.specific, self.hdf5().H5VLgroup_specific, &passed_on,
                   dxpl, nullptr);
}

herr_t optional(void *group, H5VL_optional_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(group);
    const Object &self = *self_handle;
    return pass_on(self, self.below->group_cls.optional, self.hdf5().H5VLgroup_optional, args, dxpl,
                   nullptr);
}

herr_t close(void *group, hid_t dxpl, void **)
{
    Handle self(group);
    const herr_t result =
        pass_on(*self, self->below->group_cls.close, self->hdf5().H5VLgroup_close, dxpl, nullptr);
    if (result >= 0) self.release();
    return result;
}

} // namespace

void fill_group_class(H5VL_group_class_t &group_class)
{
    group_class = {create, open, get, specific, optional, close};
}

} // namespace sds::vol
