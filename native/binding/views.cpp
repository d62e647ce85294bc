#include "views.h"

namespace nb = nanobind;

void refuse(const std::string &message)
{
    const nb::object type = nb::module_::import_("sds.errors").attr("SdsValueError");
    PyErr_SetString(type.ptr(), message.c_str());
    throw nb::python_error();
}

std::string bytes_of_path(nb::handle path)
{
    const nb::object encoded = nb::module_::import_("os").attr("fsencode")(path);
    char *bytes = nullptr;
    Py_ssize_t n = 0;
    if (PyBytes_AsStringAndSize(encoded.ptr(), &bytes, &n) != 0) throw nb::python_error();
    const std::string text(bytes, static_cast<size_t>(n));
    if (text.find('\0') != std::string::npos) refuse("a path cannot contain a NUL character");
    return text;
}

nb::object path_of_bytes(const char *bytes)
{
    return nb::steal(PyUnicode_DecodeFSDefault(bytes));
}

Buffer::Buffer(nb::handle object, bool is_written)
{
    const int flags = PyBUF_C_CONTIGUOUS | (is_written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
}

Buffer::~Buffer()
{
    PyBuffer_Release(&view_);
}
