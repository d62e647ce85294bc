// Objects of any kind: passed on.
#include "object.h"
#include "open_file.h"
#include "operation.h"
#include "pass_on.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

constexpr int change_reference_count = 0; // of H5VL_object_specific_t

void *open(void *object, const H5VL_loc_params_t *location, H5I_type_t *opened_type, hid_t dxpl,
           void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return wrap_beside(self,
                       pass_on_at(self, location, self.below->object_cls.open,
                                  self.hdf5().H5VLobject_open, opened_type, dxpl, nullptr),
                       location->type == H5VL_OBJECT_BY_TOKEN);
}

herr_t copy(void *source, const H5VL_loc_params_t *source_location, const char *source_name,
            void *target, const H5VL_loc_params_t *target_location, const char *target_name,
            hid_t ocpypl, hid_t lcpl, hid_t dxpl, void **)
{
    const Handle self_handle(source ? source : target);
    const Object &self = *self_handle;
    if (target) before_write(*Handle(target), target_location->obj_type);
    const auto direct = self.below->object_cls.copy;
    return direct ? direct(under(source), source_location, source_name, under(target),
                           target_location, target_name, ocpypl, lcpl, dxpl, nullptr)
                  : self.hdf5().H5VLobject_copy(under(source), source_location, source_name,
                                                under(target), target_location, target_name,
                                                self.connector, ocpypl, lcpl, dxpl, nullptr);
}

// H5VL_OBJECT_GET_FILE included: HDF5 itself wraps the file that it returns.
herr_t get(void *object, const H5VL_loc_params_t *location, H5VL_object_get_args_t *args,
           hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return pass_on_at(self, location, self.below->object_cls.get, self.hdf5().H5VLobject_get, args,
                      dxpl, nullptr);
}

herr_t specific(void *object, const H5VL_loc_params_t *location, H5VL_object_specific_args_t *args,
                hid_t dxpl, void **)
{
    const Handle self_handle(object);
    Object &self = *self_handle;
    if (operation_of(args) == change_reference_count) before_write(self, location->obj_type);
    return pass_on_at(self, location, self.below->object_cls.specific,
                      self.hdf5().H5VLobject_specific, args, dxpl, nullptr);
}

herr_t optional(void *object, const H5VL_loc_params_t *location, H5VL_optional_args_t *args,
                hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return pass_on_at(self, location, self.below->object_cls.optional,
                      self.hdf5().H5VLobject_optional, args, dxpl, nullptr);
}

} // namespace

herr_t any_optional(void *object, H5VL_optional_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return self.hdf5().H5VLoptional(self.under, self.connector, args, dxpl, nullptr);
}

void fill_object_class(H5VL_object_class_t &object_class)
{
    object_class = {open, copy, get, specific, optional};
}

} // namespace sds::vol
