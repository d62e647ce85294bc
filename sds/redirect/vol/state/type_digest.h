// Identifies a datatype across versions of HDF5.
#pragma once

#include "host.h"

namespace sds::vol
{

// H5T_class_t, as far as the connector asks for it.
enum TypeClass {
    type_integer = 0,
    type_float = 1,
    type_string = 3,
    type_bitfield = 4,
    type_opaque = 5,
    type_compound = 6,
    type_enum = 8,
    type_array = 10
};

// CRC-32C of the type's canonical text, specified in sds/table_format.h. False where the type has
// none: variable-length, reference and other types that no table names.
bool type_crc32c(const Host &host, hid_t type, uint32_t &crc);

// Whether it has one, in a third of the time.
bool has_digest(const Host &host, hid_t type);

} // namespace sds::vol
