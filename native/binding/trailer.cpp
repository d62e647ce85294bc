#include "sds/trailer.h"

#include <cstring>

#include "binding.h"
#include "sds/blocks.h"

namespace nb = nanobind;

namespace
{

nb::dict read_trailer(int descriptor)
{
    sds_trailer trailer;
    check(sds_trailer_read(descriptor, &trailer), "the arrays behind its end");
    nb::dict places;
    for (int64_t i = 0; i < trailer.n_entries; i++) {
        const sds_trailer_entry &entry = trailer.entries[i];
        const nb::str name(entry.name, strnlen(entry.name, sizeof entry.name));
        places[name] = nb::make_tuple(entry.offset_bytes, entry.size_bytes);
    }
    return places;
}

} // namespace

void bind_trailer(nb::module_ &module)
{
    module.def("read_trailer", read_trailer, nb::arg("descriptor"));
    module.def("block_bytes", sds_block_bytes, nb::arg("n_bytes"));
}
