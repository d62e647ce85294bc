// Files.
#include "connector_info.h"
#include "error_stack.h"
#include "object.h"
#include "open_file.h"
#include "pass_on.h"
#include "tracing.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

herr_t get(void *file, H5VL_file_get_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(file);
    const Object &self = *self_handle;
    return pass_on(self, self.below->file_cls.get, self.hdf5().H5VLfile_get, args, dxpl, nullptr);
}

herr_t optional(void *file, H5VL_optional_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(file);
    const Object &self = *self_handle;
    return pass_on(self, self.below->file_cls.optional, self.hdf5().H5VLfile_optional, args, dxpl,
                   nullptr);
}

herr_t close(void *file, hid_t dxpl, void **)
{
    Handle self(file);
    remember_close(*self);
    const herr_t result =
        pass_on(*self, self->below->file_cls.close, self->hdf5().H5VLfile_close, dxpl, nullptr);
    if (result >= 0) {
        self.release();
        flush_trace_at_close();
    }
    return result;
}

// Operations on a file by its name. HDF5 also asks whether a file is accessible while it looks for
// a connector after a failed open, whose errors are still on the stack and must stay there.
herr_t specific_by_name(Host &host, H5VL_file_specific_args_t *args, hid_t dxpl)
{
    ErrorStackKeeper keep(host);
    const bool had_errors = keep.holds_errors();
    H5VL_file_specific_args_t passed_on = *args;
    hid_t &fapl = args->op_type == H5VL_FILE_DELETE ? passed_on.args.del.fapl_id
                                                    : passed_on.args.is_accessible.fapl_id;
    UnderAccess access(host, fapl);
    if (!access.ok()) return -1;
    fapl = access.fapl();
    if (args->op_type == H5VL_FILE_DELETE) drop_table_of(args->args.del.filename);
    const auto direct = host.class_of(access.connector()).file_cls.specific;
    const herr_t result = direct ? direct(nullptr, &passed_on, dxpl, nullptr)
                                 : host.hdf5.H5VLfile_specific(nullptr, access.connector(),
                                                               &passed_on, dxpl, nullptr);
    if (result < 0 && !had_errors) keep.discard();
    return result;
}

} // namespace

void *file_create(Host &host, const char *name, unsigned flags, hid_t fcpl, hid_t fapl, hid_t dxpl)
{
    UnderAccess access(host, fapl);
    if (!access.ok()) return nullptr;
    FileOpening opening(host, name, flags, access.fapl());
    const auto direct = host.class_of(access.connector()).file_cls.create;
    const auto create = direct ? direct : host.hdf5.H5VLfile_create;
    Object *file =
        wrap(host, access.connector(), create(name, flags, fcpl, access.fapl(), dxpl, nullptr));
    if (file) file->file = opening.created(*file);
    return file;
}

void *file_open(Host &host, const char *name, unsigned flags, hid_t fapl, hid_t dxpl)
{
    UnderAccess access(host, fapl);
    if (!access.ok()) return nullptr;
    FileOpening opening(host, name, flags, access.fapl());
    const auto direct = host.class_of(access.connector()).file_cls.open;
    const auto open = direct ? direct : host.hdf5.H5VLfile_open;
    Object *file = wrap(host, access.connector(), open(name, flags, access.fapl(), dxpl, nullptr));
    if (file) file->file = opening.opened(*file);
    return file;
}

herr_t file_specific(Host &host, void *file, H5VL_file_specific_args_t *args, hid_t dxpl)
{
    if (args->op_type == H5VL_FILE_IS_ACCESSIBLE || args->op_type == H5VL_FILE_DELETE)
        return specific_by_name(host, args, dxpl);
    const Handle self_handle(file);
    const Object &self = *self_handle;
    // The other file of H5VL_FILE_IS_EQUAL is the native connector's already.
    const herr_t result = pass_on(self, self.below->file_cls.specific,
                                  self.hdf5().H5VLfile_specific, args, dxpl, nullptr);
    if (args->op_type == H5VL_FILE_REOPEN && result >= 0 && args->args.reopen.file)
        *args->args.reopen.file = wrap_beside(self, *args->args.reopen.file);
    return result;
}

void fill_file_class(H5VL_file_class_t &file_class)
{
    file_class = {nullptr, nullptr, get, nullptr, optional, close};
}

} // namespace sds::vol
