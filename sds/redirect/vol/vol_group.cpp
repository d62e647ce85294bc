// Groups: passed on.
#include "object.h"
#include "open_file.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

void *create(void *object, const H5VL_loc_params_t *location, const char *name, hid_t lcpl,
             hid_t gcpl, hid_t gapl, hid_t dxpl, void **)
{
    Object &self = *as_object(object);
    before_write(self, location->obj_type);
    return wrap_beside(self, self.hdf5().H5VLgroup_create(self.under, location, self.connector,
                                                          name, lcpl, gcpl, gapl, dxpl, nullptr));
}

void *open(void *object, const H5VL_loc_params_t *location, const char *name, hid_t gapl,
           hid_t dxpl, void **)
{
    const Object &self = *as_object(object);
    return wrap_beside(self, self.hdf5().H5VLgroup_open(self.under, location, self.connector, name,
                                                        gapl, dxpl, nullptr));
}

herr_t get(void *group, H5VL_group_get_args_t *args, hid_t dxpl, void **)
{
    const Object &self = *as_object(group);
    return self.hdf5().H5VLgroup_get(self.under, self.connector, args, dxpl, nullptr);
}

herr_t specific(void *group, H5VL_group_specific_args_t *args, hid_t dxpl, void **)
{
    const Object &self = *as_object(group);
    H5VL_group_specific_args_t passed_on = *args;
    if (args->op_type == H5VL_GROUP_MOUNT)
        passed_on.args.mount.child_file = under(args->args.mount.child_file);
    return self.hdf5().H5VLgroup_specific(self.under, self.connector, &passed_on, dxpl, nullptr);
}

herr_t optional(void *group, H5VL_optional_args_t *args, hid_t dxpl, void **)
{
    const Object &self = *as_object(group);
    return self.hdf5().H5VLgroup_optional(self.under, self.connector, args, dxpl, nullptr);
}

herr_t close(void *group, hid_t dxpl, void **)
{
    Object *self = as_object(group);
    const herr_t result = self->hdf5().H5VLgroup_close(self->under, self->connector, dxpl, nullptr);
    if (result >= 0) release(self);
    return result;
}

} // namespace

void fill_group_class(H5VL_group_class_t &group_class)
{
    group_class = {create, open, get, specific, optional, close};
}

} // namespace sds::vol
