#include "type_digest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sds/checksum.h"

namespace sds::vol
{
namespace
{

// Where the bits of a floating-point number are.
struct FloatFields {
    size_t sign, exponent, exponent_size, mantissa, mantissa_size, bias;
    int norm; // H5T_norm_t: 0, the leading bit of the mantissa is implied
};

// The text itself is never needed whole: its checksum grows with it.
class Digest
{
  public:
    Digest(const Host &host, bool hashes) : host_(host), hdf5_(host.hdf5), hashes_(hashes), crc_(0)
    {
    }

    uint32_t crc() const { return crc_; }
    bool add_type(hid_t type);

  private:
    __attribute__((format(printf, 2, 3))) void add(const char *format, ...);
    void add_name(const char *name);
    bool add_order(hid_t type);
    bool add_bits(hid_t type);
    bool add_integer(hid_t type);
    bool add_float(hid_t type);
    bool find_fields(hid_t type, FloatFields &fields);
    bool add_string(hid_t type);
    bool add_opaque(hid_t type);
    bool add_enum(hid_t type);
    bool add_compound(hid_t type);
    bool add_array(hid_t type);
    bool add_base(hid_t type);
    bool add_member_name(hid_t type, unsigned i);

    const Host &host_;
    const Functions &hdf5_;
    const bool hashes_; // else it is but found out whether the type has a digest
    uint32_t crc_;
};

void Digest::add(const char *format, ...)
{
    if (!hashes_) return;
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    crc_ = sds_crc32c(crc_, text, static_cast<size_t>(n));
}

void Digest::add_name(const char *name)
{
    for (const char *c = name; hashes_ && *c; c++) {
        if (strchr("\\{}=;@:[]", *c)) crc_ = sds_crc32c(crc_, "\\", 1);
        crc_ = sds_crc32c(crc_, c, 1);
    }
}

bool Digest::add_order(hid_t type)
{
    constexpr int little_endian = 0, big_endian = 1, none = 4; // H5T_order_t
    const int order = hdf5_.H5Tget_order(type);
    if (order != little_endian && order != big_endian && order != none) return false;
    add("%s", order == big_endian ? ">" : "<");
    return true;
}

bool Digest::add_bits(hid_t type)
{
    if (hashes_) add("%d:%zu", hdf5_.H5Tget_offset(type), hdf5_.H5Tget_precision(type));
    return true;
}

bool Digest::add_integer(hid_t type)
{
    constexpr int unsigned_sign = 0, twos_complement = 1; // H5T_sign_t
    const int sign = hdf5_.H5Tget_sign(type);
    if (sign != unsigned_sign && sign != twos_complement) return false;
    add("i%zu", hdf5_.H5Tget_size(type));
    if (!add_order(type)) return false;
    add("%s", sign == twos_complement ? "s" : "u");
    return add_bits(type);
}

bool Digest::find_fields(hid_t type, FloatFields &fields)
{
    if (hdf5_.H5Tget_fields && hdf5_.H5Tget_ebias && hdf5_.H5Tget_norm) {
        fields.bias = hdf5_.H5Tget_ebias(type);
        fields.norm = hdf5_.H5Tget_norm(type);
        return hdf5_.H5Tget_fields(type, &fields.sign, &fields.exponent, &fields.exponent_size,
                                   &fields.mantissa, &fields.mantissa_size) >= 0;
    }
    // In the order of Host::ieee_floats.
    constexpr FloatFields single = {31, 23, 8, 0, 23, 127, 0};
    constexpr FloatFields wide = {63, 52, 11, 0, 52, 1023, 0};
    constexpr FloatFields ieee[n_ieee_floats] = {single, single, wide, wide};
    for (int i = 0; i < n_ieee_floats; i++) {
        if (!host_.ieee_floats[i] || hdf5_.H5Tequal(type, *host_.ieee_floats[i]) <= 0) continue;
        fields = ieee[i];
        return true;
    }
    return false;
}

bool Digest::add_float(hid_t type)
{
    FloatFields fields = {};
    if (!find_fields(type, fields)) return false;
    add("f%zu", hdf5_.H5Tget_size(type));
    if (!add_order(type) || !add_bits(type)) return false;
    add("{%zu,%zu,%zu,%zu,%zu,%zu,%d}", fields.sign, fields.exponent, fields.exponent_size,
        fields.mantissa, fields.mantissa_size, fields.bias, fields.norm);
    return true;
}

bool Digest::add_string(hid_t type)
{
    constexpr char padding[] = {'t', 'z', 's'}; // H5T_str_t
    if (!hdf5_.H5Tget_strpad || !hdf5_.H5Tget_cset) return false;
    const int pad = hdf5_.H5Tget_strpad(type);
    if (hdf5_.H5Tis_variable_str(type) != 0 || pad < 0 || pad > 2) return false;
    add("s%zu%c%d", hdf5_.H5Tget_size(type), padding[pad], hdf5_.H5Tget_cset(type));
    return true;
}

bool Digest::add_opaque(hid_t type)
{
    char *tag = hdf5_.H5Tget_tag ? hdf5_.H5Tget_tag(type) : nullptr;
    if (!tag) return false;
    add("o%zu[", hdf5_.H5Tget_size(type));
    add_name(tag);
    add("]");
    hdf5_.H5free_memory(tag);
    return true;
}

bool Digest::add_base(hid_t type)
{
    const hid_t base = hdf5_.H5Tget_super(type);
    if (base < 0) return false;
    const bool known = add_type(base);
    hdf5_.H5Tclose(base);
    return known;
}

bool Digest::add_member_name(hid_t type, unsigned i)
{
    char *name = hdf5_.H5Tget_member_name(type, i);
    if (!name) return false;
    add_name(name);
    hdf5_.H5free_memory(name);
    return true;
}

bool Digest::add_enum(hid_t type)
{
    unsigned char value[64];
    const size_t size = hdf5_.H5Tget_size(type);
    const int n = hdf5_.H5Tget_nmembers(type);
    if (size > sizeof value || n < 0) return false;
    add("e");
    if (!add_base(type)) return false;
    add("{");
    for (unsigned i = 0; i < static_cast<unsigned>(n); i++) {
        if (!add_member_name(type, i) || hdf5_.H5Tget_member_value(type, i, value) < 0)
            return false;
        add("=");
        for (size_t byte = 0; byte < size; byte++)
            add("%02x", value[byte]);
        add(";");
    }
    add("}");
    return true;
}

bool Digest::add_compound(hid_t type)
{
    const int n = hdf5_.H5Tget_nmembers(type);
    if (n < 0) return false;
    add("c%zu{", hdf5_.H5Tget_size(type));
    for (unsigned i = 0; i < static_cast<unsigned>(n); i++) {
        if (!add_member_name(type, i)) return false;
        add("@%zu:", hdf5_.H5Tget_member_offset(type, i));
        const hid_t member = hdf5_.H5Tget_member_type(type, i);
        if (member < 0) return false;
        const bool known = add_type(member);
        hdf5_.H5Tclose(member);
        if (!known) return false;
        add(";");
    }
    add("}");
    return true;
}

bool Digest::add_array(hid_t type)
{
    hsize_t extent[32];
    const int rank = hdf5_.H5Tget_array_ndims(type);
    if (rank < 0 || rank > 32 || hdf5_.H5Tget_array_dims2(type, extent) < 0) return false;
    add("a[");
    for (int axis = 0; axis < rank; axis++)
        add("%llu,", static_cast<unsigned long long>(extent[axis]));
    add("]");
    return add_base(type);
}

bool Digest::add_type(hid_t type)
{
    switch (hdf5_.H5Tget_class(type)) {
    case type_integer:
        return add_integer(type);
    case type_float:
        return add_float(type);
    case type_string:
        return add_string(type);
    case type_bitfield:
        add("b%zu", hdf5_.H5Tget_size(type));
        return add_order(type) && add_bits(type);
    case type_opaque:
        return add_opaque(type);
    case type_compound:
        return add_compound(type);
    case type_enum:
        return add_enum(type);
    case type_array:
        return add_array(type);
    default:
        return false;
    }
}

} // namespace

bool type_crc32c(const Host &host, hid_t type, uint32_t &crc)
{
    Digest digest(host, true);
    if (!digest.add_type(type)) return false;
    crc = digest.crc();
    return true;
}

bool has_digest(const Host &host, hid_t type)
{
    return Digest(host, false).add_type(type);
}

} // namespace sds::vol
