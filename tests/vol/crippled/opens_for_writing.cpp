// A connector that opens for writing what the program opens for reading.
#include "vol_class.h"

namespace sds::vol
{

void *sound_file_open(Host &host, const char *name, unsigned flags, hid_t fapl, hid_t dxpl);

void *file_open(Host &host, const char *name, unsigned flags, hid_t fapl, hid_t dxpl)
{
    return sound_file_open(host, name, flags | H5F_ACC_RDWR, fapl, dxpl);
}

} // namespace sds::vol
