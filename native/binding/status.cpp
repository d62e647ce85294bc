#include <cerrno>
#include <cstring>
#include <string>

#include "binding.h"

namespace nb = nanobind;

namespace
{

// Name of the exception in sds.errors, or of a builtin.
const char *exception_name(sds_status status)
{
    switch (status) {
#define XX(name, value, text, exception)                                                           \
    case SDS_##name:                                                                               \
        return exception;
        SDS_STATUS_MAP(XX)
#undef XX
    }
    return "SdsError";
}

// Paths in messages may hold any bytes.
nb::object message_of(const std::string &text)
{
    return nb::steal(PyUnicode_DecodeFSDefault(text.c_str()));
}

} // namespace

void check(sds_status status, const char *what)
{
    if (status == SDS_OK) return;
    const int saved_errno = errno;
    if (status == SDS_EIO && saved_errno != 0) {
        const std::string text = std::string(what) + ": " + std::strerror(saved_errno);
        const nb::object arguments = nb::make_tuple(saved_errno, message_of(text));
        PyErr_SetObject(PyExc_OSError, arguments.ptr());
        throw nb::python_error();
    }
    const std::string message = std::string(what) + ": " + sds_status_text(status);
    const char *name = exception_name(status);
    nb::object type;
    if (std::strcmp(name, "MemoryError") == 0 || std::strcmp(name, "OSError") == 0) {
        type = nb::module_::import_("builtins").attr(name);
    } else {
        type = nb::module_::import_("sds.errors").attr(name);
    }
    PyErr_SetObject(type.ptr(), message_of(message).ptr());
    throw nb::python_error();
}
