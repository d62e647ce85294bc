// Wrapping: HDF5 lets the connector wrap objects that the layer below makes by itself, as when a
// reference is followed or a committed datatype is opened on the way.
#include <stdlib.h>

#include "error_stack.h"
#include "object.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

// The native connector wraps nothing.
template <typename Of> bool is_native(const Of &object)
{
    return object.connector == object.host->native;
}

void *get_object(const void *object)
{
    if (is_bare(object)) return under_bare(object);
    const auto &self = *static_cast<const Object *>(object);
    if (is_native(self)) return self.under;
    return self.hdf5().H5VLget_object(self.under, self.connector);
}

// Of another connector than the native one.
SDS_COLD herr_t make_context(const Object &self, void **context)
{
    auto *made = static_cast<WrapContext *>(malloc(sizeof(WrapContext)));
    if (!made) return -1;
    *made = {self.host, self.connector, nullptr};
    if (self.hdf5().H5VLget_wrap_ctx(self.under, self.connector, &made->under_context) < 0) {
        free(made);
        return -1;
    }
    self.hdf5().H5Iinc_ref(self.connector);
    *context = made;
    return 0;
}

SDS_HOT herr_t get_wrap_context(const void *object, void **context)
{
    // HDF5 asks for a context at nearly every call. The native connector needs none of its own, so
    // one per host serves all: allocating it anew triples the cost of a small call.
    if (seldom(is_bare(object))) {
        *context = &host_of_bare(object).native_wrap_context;
        return 0;
    }
    const auto &self = *static_cast<const Object *>(object);
    if (seldom(!is_native(self))) return make_context(self, context);
    *context = &self.host->native_wrap_context;
    return 0;
}

void *wrap_object(void *object, H5I_type_t type, void *context)
{
    const auto &self = *static_cast<const WrapContext *>(context);
    void *under = is_native(self) ? object
                                  : self.host->hdf5.H5VLwrap_object(object, type, self.connector,
                                                                    self.under_context);
    return hand_out(*self.host, self.connector, under, nullptr, false);
}

void *unwrap_object(void *object)
{
    DatasetHandle self(object); // or anything else: nothing is kept of that
    void *under = is_native(*self) ? self->under
                                   : self->hdf5().H5VLunwrap_object(self->under, self->connector);
    if (under) self.release();
    return under;
}

SDS_COLD void drop_context(WrapContext *self)
{
    const Host &host = *self->host;
    // HDF5 frees contexts after a failed call, too.
    ErrorStackKeeper keep(host);
    if (self->under_context) host.hdf5.H5VLfree_wrap_ctx(self->under_context, self->connector);
    host.hdf5.H5Idec_ref(self->connector);
    free(self);
}

SDS_HOT herr_t free_wrap_context(void *context)
{
    auto *self = static_cast<WrapContext *>(context);
    if (seldom(self != &self->host->native_wrap_context)) drop_context(self);
    return 0;
}

} // namespace

void fill_wrap_class(H5VL_wrap_class_t &wrap_class)
{
    wrap_class = {get_object, get_wrap_context, wrap_object, unwrap_object, free_wrap_context};
}

} // namespace sds::vol
