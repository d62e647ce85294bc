// Links: passed on.
#include "object.h"
#include "open_file.h"
#include "operation.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

constexpr int link_delete = 0; // of H5VL_link_specific_t

herr_t copy(void *source, const H5VL_loc_params_t *source_location, void *target,
            const H5VL_loc_params_t *target_location, hid_t lcpl, hid_t lapl, hid_t dxpl, void **)
{
    const Object &self = *as_object(source ? source : target); // one of them may be H5L_SAME_LOC
    before_write();
    return self.hdf5().H5VLlink_copy(under(source), source_location, under(target), target_location,
                                     self.connector, lcpl, lapl, dxpl, nullptr);
}

herr_t move(void *source, const H5VL_loc_params_t *source_location, void *target,
            const H5VL_loc_params_t *target_location, hid_t lcpl, hid_t lapl, hid_t dxpl, void **)
{
    const Object &self = *as_object(source ? source : target);
    before_write();
    return self.hdf5().H5VLlink_move(under(source), source_location, under(target), target_location,
                                     self.connector, lcpl, lapl, dxpl, nullptr);
}

herr_t get(void *object, const H5VL_loc_params_t *location, H5VL_link_get_args_t *args, hid_t dxpl,
           void **)
{
    const Object &self = *as_object(object);
    return self.hdf5().H5VLlink_get(self.under, location, self.connector, args, dxpl, nullptr);
}

herr_t specific(void *object, const H5VL_loc_params_t *location, H5VL_link_specific_args_t *args,
                hid_t dxpl, void **)
{
    const Object &self = *as_object(object);
    if (operation_of(args) == link_delete) before_write();
    return self.hdf5().H5VLlink_specific(self.under, location, self.connector, args, dxpl, nullptr);
}

herr_t optional(void *object, const H5VL_loc_params_t *location, H5VL_optional_args_t *args,
                hid_t dxpl, void **)
{
    const Object &self = *as_object(object);
    return self.hdf5().H5VLlink_optional(self.under, location, self.connector, args, dxpl, nullptr);
}

} // namespace

herr_t link_create(Host &host, H5VL_link_create_args_t *args, void *object,
                   const H5VL_loc_params_t *location, hid_t lcpl, hid_t lapl, hid_t dxpl)
{
    H5VL_link_create_args_t passed_on = *args;
    const Object *self = as_object(object);
    if (args->op_type == H5VL_LINK_CREATE_HARD && args->args.hard.curr_obj) {
        const Object *target = as_object(args->args.hard.curr_obj);
        passed_on.args.hard.curr_obj = target->under;
        if (!self) self = target;
    }
    before_write();
    const hid_t connector = self ? self->connector : host.native;
    return host.hdf5.H5VLlink_create(&passed_on, under(object), location, connector, lcpl, lapl,
                                     dxpl, nullptr);
}

void fill_link_class(H5VL_link_class_t &link_class)
{
    link_class = {nullptr, copy, move, get, specific, optional};
}

} // namespace sds::vol
