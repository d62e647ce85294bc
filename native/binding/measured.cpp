#include "measured.h"

#include <nanobind/stl/string.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "binding.h"
#include "plan.h"
#include "views.h"

namespace nb = nanobind;

Measured::Measured(nb::handle bytes)
{
    const Buffer from(bytes, false);
    check(sds_measured_from_bytes(from.bytes(), from.size(), &measured_), "measured");
}

Measured::~Measured()
{
    sds_measured_close(measured_);
}

const sds_io_parameters *Measured::find(const char *canonical_path, uint64_t kind) const
{
    return sds_measured_find(measured_, canonical_path, kind);
}

namespace
{

// (mount point, kind, parameters) of each.
nb::list file_systems(const Measured &self)
{
    nb::list list;
    for (size_t i = 0; i < sds_measured_count(self.get()); i++) {
        sds_measured_filesystem found;
        sds_measured_at(self.get(), i, &found);
        list.append(nb::make_tuple(nb::steal(PyUnicode_DecodeFSDefault(found.mount_point)),
                                   found.kind, parameters_dict(found.parameters)));
    }
    return list;
}

nb::object find(const Measured &self, nb::handle path, uint64_t kind)
{
    const std::string name = bytes_of_path(path);
    const sds_io_parameters *found = self.find(name.c_str(), kind);
    if (found == nullptr) return nb::none();
    return parameters_dict(*found);
}

nb::bytes encode_measured(const nb::list &file_systems)
{
    std::vector<std::string> names;
    std::vector<sds_measured_filesystem> all;
    for (const nb::handle entry : file_systems) {
        const auto fields = nb::cast<nb::tuple>(entry);
        names.push_back(bytes_of_path(fields[0]));
        all.push_back({nullptr, nb::cast<uint64_t>(fields[1]), io_parameters_of(fields[2])});
    }
    for (size_t i = 0; i < all.size(); i++)
        all[i].mount_point = names[i].c_str();
    void *bytes = nullptr;
    size_t n = 0;
    check(sds_measured_encode(all.size(), all.data(), &bytes, &n), "measured");
    const nb::bytes made(bytes, n);
    std::free(bytes);
    return made;
}

} // namespace

void bind_measured(nb::module_ &module)
{
    module.attr("MEASURED_NAME") = SDS_MEASURED_NAME;
    module.def("encode_measured", &encode_measured, nb::arg("file_systems"));
    nb::class_<Measured>(module, "Measured")
        .def(nb::init<nb::handle>(), nb::arg("encoded"))
        .def("file_systems", &file_systems)
        .def("find", &find, nb::arg("canonical_path"), nb::arg("kind"));
}
