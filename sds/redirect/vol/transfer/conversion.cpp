#include "conversion.h"

#include "error_stack.h"
#include "type_digest.h"

namespace sds::vol
{
namespace
{

bool is_number(const Host &host, hid_t type)
{
    const int type_class = host.hdf5.H5Tget_class(type);
    return type_class == type_integer || type_class == type_float || type_class == type_enum;
}

// HDF5 makes no enumeration of numbers, which is for it alone to say; and of a value that another
// enumeration lacks it makes what happens to lie in its memory (2.2).
bool is_enum(const Host &host, hid_t type)
{
    return host.hdf5.H5Tget_class(type) == type_enum;
}

// A program that has conversions call it is to be called as often as by HDF5 alone.
bool has_callback(const Host &host, hid_t dxpl)
{
    if (dxpl == 0 || dxpl == *host.default_dxpl) return false;
    void (*callback)(void) = nullptr;
    void *data = nullptr;
    return host.hdf5.H5Pget_type_conv_cb(dxpl, &callback, &data) < 0 || callback;
}

// HDF5 refuses to convert in a buffer of the program's choice that does not hold an element.
bool holds_an_element(const Host &host, const Conversion &conversion)
{
    if (conversion.dxpl == 0 || conversion.dxpl == *host.default_dxpl || !host.hdf5.H5Pget_buffer)
        return true;
    const int64_t most =
        conversion.from_bytes > conversion.to_bytes ? conversion.from_bytes : conversion.to_bytes;
    constexpr size_t usual_bytes = 1 << 20; // made larger where it is too small
    void *buffer = nullptr, *background = nullptr;
    const size_t bytes = host.hdf5.H5Pget_buffer(conversion.dxpl, &buffer, &background);
    return bytes >= static_cast<size_t>(most) || (bytes == usual_bytes && !buffer && !background);
}

bool call_convert(const Host &host, const Conversion &conversion, int64_t n_elements, void *buffer,
                  void *background)
{
    ErrorStackKeeper keep(host);
    return host.hdf5.H5Tconvert(conversion.from, conversion.to, static_cast<size_t>(n_elements),
                                buffer, background, conversion.dxpl) >= 0;
}

} // namespace

bool plan_conversion(const Host &host, hid_t file_type, int64_t element_bytes, hid_t memory_type,
                     hid_t dxpl, Conversion &out)
{
    constexpr int datatype = 3; // H5I_DATATYPE
    out = {0, 0, dxpl, element_bytes, element_bytes, false, false};
    // What is wrong with it is HDF5's to say.
    if (file_type < 0 || host.hdf5.H5Iget_type(memory_type) != datatype) return false;
    if (host.hdf5.H5Tequal(memory_type, file_type) > 0) return true;
    out.from = file_type;
    out.to = memory_type;
    out.to_bytes = static_cast<int64_t>(host.hdf5.H5Tget_size(memory_type));
    if (out.to_bytes <= 0 || is_enum(host, memory_type) || has_callback(host, dxpl) ||
        !holds_an_element(host, out))
        return false;
    out.is_of_numbers = is_number(host, file_type) && is_number(host, memory_type);
    if (out.is_of_numbers) return true;
    SilenceKeeper silence(host); // not every type can be converted into every other
    ErrorStackKeeper keep(host);
    H5T_cdata_t *path = nullptr;
    if (!host.hdf5.H5Tfind(file_type, memory_type, &path) || !path) return false;
    out.needs_background = path->need_bkg != H5T_BKG_NO;
    return true;
}

bool convert(const Host &host, const Conversion &conversion, int64_t n_elements, void *buffer,
             void *background)
{
    if (conversion.from == 0) return true;
    if (conversion.is_of_numbers)
        return call_convert(host, conversion, n_elements, buffer, background);
    SilenceKeeper silence(host); // HDF5 itself is asked again, and says what is wrong
    return call_convert(host, conversion, n_elements, buffer, background);
}

} // namespace sds::vol
