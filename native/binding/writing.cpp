#include <nanobind/ndarray.h>

#include <string>

#include "binding.h"
#include "sds/write_runs.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Offsets = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void write_runs(int fd, int64_t base, const Offsets &offsets, size_t run_bytes, const Bytes &bytes)
{
    const size_t n = offsets.shape(0);
    if (run_bytes != 0 && (bytes.shape(0) / run_bytes < n))
        refuse("bytes holds " + std::to_string(bytes.shape(0)) + " bytes, fewer than " +
               std::to_string(n) + " runs of " + std::to_string(run_bytes));
    sds_status status = SDS_OK;
    {
        const nb::gil_scoped_release release;
        status = sds_write_runs(fd, base, n, offsets.data(), run_bytes, bytes.data());
    }
    check(status, "write_runs");
}

} // namespace

void bind_writing(nb::module_ &module)
{
    module.def("write_runs", &write_runs, nb::arg("fd"), nb::arg("base"), nb::arg("offsets"),
               nb::arg("run_bytes"), nb::arg("packed"));
}
