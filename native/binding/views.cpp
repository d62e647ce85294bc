#include "views.h"

#include <cstring>

namespace nb = nanobind;

void refuse(const std::string &message)
{
    const nb::object type = nb::module_::import_("sds.errors").attr("SdsValueError");
    PyErr_SetString(type.ptr(), message.c_str());
    throw nb::python_error();
}

std::string bytes_of_path(nb::handle path)
{
    nb::object encoded = nb::steal(PyOS_FSPath(path.ptr()));
    if (encoded.is_valid() && PyUnicode_Check(encoded.ptr()))
        encoded = nb::steal(PyUnicode_EncodeFSDefault(encoded.ptr()));
    if (!encoded.is_valid()) throw nb::python_error();
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

FormattedBuffer::FormattedBuffer(nb::handle object, bool is_written)
{
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (is_written ? PyBUF_WRITABLE : 0);
    is_open_ = PyObject_GetBuffer(object.ptr(), &view_, flags) == 0;
    if (!is_open_) PyErr_Clear();
}

FormattedBuffer::~FormattedBuffer()
{
    if (is_open_) PyBuffer_Release(&view_);
}

bool FormattedBuffer::is_int64_list() const
{
    const char *format = is_open_ ? view_.format : nullptr;
    return format != nullptr && (*format == 'l' || *format == 'q') && format[1] == '\0' &&
           view_.itemsize == 8 && view_.ndim == 1;
}

bool FormattedBuffer::has_objects() const
{
    return view_.format != nullptr && std::strchr(view_.format, 'O') != nullptr;
}
