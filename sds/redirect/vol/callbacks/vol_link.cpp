// Links: passed on.
#include "object.h"
#include "open_file.h"
#include "operation.h"
#include "pass_on.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

constexpr int link_delete = 0; // of H5VL_link_specific_t

// Before a link is written at one of two places, of which either may stand for both
// (H5L_SAME_LOC).
void before_write_at(void *written, const H5VL_loc_params_t *location, void *other,
                     const H5VL_loc_params_t *other_location)
{
    if (written)
        before_write(*Handle(written), location->obj_type);
    else
        before_write(*Handle(other), other_location->obj_type);
}

herr_t copy(void *source, const H5VL_loc_params_t *source_location, void *target,
            const H5VL_loc_params_t *target_location, hid_t lcpl, hid_t lapl, hid_t dxpl, void **)
{
    const Handle self_handle(source ? source : target);
    const Object &self = *self_handle; // one of them may be H5L_SAME_LOC
    before_write_at(target, target_location, source, source_location);
    const auto direct = self.below->link_cls.copy;
    return direct ? direct(under(source), source_location, under(target), target_location, lcpl,
                           lapl, dxpl, nullptr)
                  : self.hdf5().H5VLlink_copy(under(source), source_location, under(target),
                                              target_location, self.connector, lcpl, lapl, dxpl,
                                              nullptr);
}

herr_t move(void *source, const H5VL_loc_params_t *source_location, void *target,
            const H5VL_loc_params_t *target_location, hid_t lcpl, hid_t lapl, hid_t dxpl, void **)
{
    const Handle self_handle(source ? source : target);
    const Object &self = *self_handle;
    before_write_at(source, source_location, target, target_location);
    before_write_at(target, target_location, source, source_location);
    const auto direct = self.below->link_cls.move;
    return direct ? direct(under(source), source_location, under(target), target_location, lcpl,
                           lapl, dxpl, nullptr)
                  : self.hdf5().H5VLlink_move(under(source), source_location, under(target),
                                              target_location, self.connector, lcpl, lapl, dxpl,
                                              nullptr);
}

herr_t get(void *object, const H5VL_loc_params_t *location, H5VL_link_get_args_t *args, hid_t dxpl,
           void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return pass_on_at(self, location, self.below->link_cls.get, self.hdf5().H5VLlink_get, args,
                      dxpl, nullptr);
}

herr_t specific(void *object, const H5VL_loc_params_t *location, H5VL_link_specific_args_t *args,
                hid_t dxpl, void **)
{
    const Handle self_handle(object);
    Object &self = *self_handle;
    if (operation_of(args) == link_delete) before_write(self, location->obj_type);
    return pass_on_at(self, location, self.below->link_cls.specific, self.hdf5().H5VLlink_specific,
                      args, dxpl, nullptr);
}

herr_t optional(void *object, const H5VL_loc_params_t *location, H5VL_optional_args_t *args,
                hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return pass_on_at(self, location, self.below->link_cls.optional, self.hdf5().H5VLlink_optional,
                      args, dxpl, nullptr);
}

} // namespace

herr_t link_create(Host &host, H5VL_link_create_args_t *args, void *object,
                   const H5VL_loc_params_t *location, hid_t lcpl, hid_t lapl, hid_t dxpl)
{
    H5VL_link_create_args_t passed_on = *args;
    const Handle at(object);
    const Handle target(args->op_type == H5VL_LINK_CREATE_HARD ? args->args.hard.curr_obj
                                                               : nullptr);
    Object *self = at ? &*at : nullptr;
    H5I_type_t type = location->obj_type;
    if (target) {
        passed_on.args.hard.curr_obj = target->under;
        if (!self) {
            self = &*target;
            type = args->args.hard.curr_loc_params.obj_type;
        }
    }
    if (self) before_write(*self, type);
    const hid_t connector = self ? self->connector : host.native;
    const auto direct = host.class_of(connector).link_cls.create;
    return direct ? direct(&passed_on, under(object), location, lcpl, lapl, dxpl, nullptr)
                  : host.hdf5.H5VLlink_create(&passed_on, under(object), location, connector, lcpl,
                                              lapl, dxpl, nullptr);
}

void fill_link_class(H5VL_link_class_t &link_class)
{
    link_class = {nullptr, copy, move, get, specific, optional};
}

} // namespace sds::vol
