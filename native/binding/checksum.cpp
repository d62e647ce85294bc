#include "sds/checksum.h"
#include "binding.h"

namespace nb = nanobind;

namespace
{

// CRC-32C over any object with the buffer protocol; lets other threads run meanwhile.
uint32_t crc32c(nb::object buffer, uint32_t crc)
{
    Py_buffer view;
    if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
    uint32_t result = 0;
    {
        const nb::gil_scoped_release release;
        result = sds_crc32c(crc, view.buf, static_cast<size_t>(view.len));
    }
    PyBuffer_Release(&view);
    return result;
}

} // namespace

void bind_checksum(nb::module_ &module)
{
    module.def("crc32c", crc32c, nb::arg("buffer"), nb::arg("crc") = 0,
               "Return the CRC-32C of a buffer, continued from crc.");
}
