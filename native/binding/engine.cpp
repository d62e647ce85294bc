#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "binding.h"
#include "sds/file_system.h"
#include "sds/identity.h"
#include "sds/permute.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;

// A NumPy array of any type without Python objects: structured and datetime ones too, which the
// buffer protocol leaves out.
struct Array {
    void *bytes;
    size_t element_bytes;
    Axes shape;
    Axes strides;
    bool is_contiguous;
};

Array array_of(nb::handle object, const char *what, bool is_written)
{
    const nb::object type = nb::module_::import_("numpy").attr("ndarray");
    if (!nb::isinstance(object, type)) refuse(std::string(what) + " is not a NumPy array");
    if (nb::cast<bool>(object.attr("dtype").attr("hasobject")))
        refuse(std::string(what) + " holds Python objects, whose bytes cannot be copied");
    const nb::dict interface = object.attr("__array_interface__");
    const nb::tuple address = interface["data"];
    if (is_written && nb::cast<bool>(address[1])) refuse(std::string(what) + " is read-only");
    Array array;
    array.bytes = reinterpret_cast<void *>(nb::cast<uintptr_t>(address[0]));
    array.element_bytes = nb::cast<size_t>(object.attr("itemsize"));
    array.shape = nb::cast<Axes>(object.attr("shape"));
    array.strides = nb::cast<Axes>(object.attr("strides"));
    array.is_contiguous = nb::cast<bool>(object.attr("flags").attr("c_contiguous"));
    return array;
}

nb::object permute(nb::object src, const std::vector<int32_t> &order, nb::object out)
{
    const Array from = array_of(src, "src", false);
    const size_t rank = from.shape.size();
    if (!from.is_contiguous) refuse("src is not C-contiguous; pass numpy.ascontiguousarray(src)");
    std::vector<bool> seen(rank, false);
    Axes shape;
    for (const int32_t axis : order) {
        const auto i = static_cast<size_t>(axis);
        if (axis < 0 || i >= rank || seen[i]) break;
        seen[i] = true;
        shape.push_back(from.shape[i]);
    }
    if (order.size() != rank || shape.size() != rank)
        refuse("order " + text_of(order) + " is no permutation of the axes 0 to " +
               std::to_string(static_cast<long long>(rank) - 1));
    if (out.is_none()) {
        nb::list extent;
        for (const int64_t n : shape)
            extent.append(n);
        out = nb::module_::import_("numpy").attr("empty")(nb::tuple(extent), src.attr("dtype"));
    }
    const Array to = array_of(out, "out", true);
    if (to.shape != shape || to.element_bytes != from.element_bytes || !to.is_contiguous)
        refuse("out must be C-contiguous, of shape " + text_of(shape) + " and " +
               std::to_string(from.element_bytes) + " bytes per element");
    sds_status status;
    {
        nb::gil_scoped_release released;
        status = sds_permute(static_cast<int32_t>(rank), from.shape.data(), order.data(),
                             from.element_bytes, from.bytes, to.bytes);
    }
    check(status, "permute");
    return out;
}

void copy_strided(nb::object src, nb::object out)
{
    const Array from = array_of(src, "src", false);
    const Array to = array_of(out, "out", true);
    if (from.shape != to.shape || from.element_bytes != to.element_bytes)
        refuse("out must have the shape " + text_of(from.shape) + " and " +
               std::to_string(from.element_bytes) + " bytes per element of src");
    sds_status status;
    {
        nb::gil_scoped_release released;
        status = sds_copy_strided(static_cast<int32_t>(from.shape.size()), from.shape.data(),
                                  from.strides.data(), to.strides.data(), from.element_bytes,
                                  from.bytes, to.bytes);
    }
    check(status, "copy_strided");
}

// Call what may wait for a file system, while other threads use the interpreter.
template <typename Call> sds_status unheld(Call call)
{
    const nb::gil_scoped_release release;
    return call();
}

nb::tuple identity(nb::object path)
{
    const std::string name = bytes_of_path(path);
    sds_identity found;
    check(unheld([&] { return sds_identity_of_path(name.c_str(), &found, nullptr, nullptr); }),
          name.c_str());
    return nb::make_tuple(found.inode, found.size_bytes, found.mtime_ns, found.ctime_ns);
}

nb::tuple file_system(int descriptor)
{
    sds_file_system found;
    check(unheld([&] { return sds_file_system_of_fd(descriptor, &found); }), "statfs");
    return nb::make_tuple(found.type, found.kind, found.instance);
}

nb::tuple instance(nb::object path)
{
    const std::string name = bytes_of_path(path);
    uint64_t device = 0, found = 0;
    check(unheld([&] { return sds_instance_of_path(name.c_str(), &device, &found); }),
          name.c_str());
    return nb::make_tuple(device, found);
}

} // namespace

void bind_engine(nb::module_ &module)
{
    module.def("permute", &permute, nb::arg("src"), nb::arg("order"), nb::arg("out") = nb::none());
    module.def("copy_strided", &copy_strided, nb::arg("src"), nb::arg("out"));
    module.def("identity", &identity, nb::arg("path"));
    module.def("file_system", &file_system, nb::arg("descriptor"));
    module.def("instance", &instance, nb::arg("path"));
}
