#include "transfer_word.h"

#include "error_stack.h"
#include "open_dataset.h"
#include "read_below.h"

namespace sds::vol
{

bool leaves_word(const Host &host, hid_t dxpl)
{
    return host.hdf5.H5Pget_dxpl_mpio && dxpl != 0 && dxpl != *host.default_dxpl;
}

hid_t select_nothing(const Host &host, const StoredDataset &stored)
{
    hsize_t extent[SDS_MAX_RANK];
    for (int32_t axis = 0; axis < stored.rank; axis++)
        extent[axis] = static_cast<hsize_t>(stored.extent[axis]);
    const hid_t space = host.hdf5.H5Screate_simple(stored.rank, extent, nullptr);
    if (space < 0 || host.hdf5.H5Sselect_none(space) >= 0) return space;
    host.hdf5.H5Sclose(space);
    return -1;
}

bool leave_word(const Object &object, const StoredDataset &stored, const ReadRequest &served)
{
    const Host &host = *object.host;
    if (!leaves_word(host, served.dxpl)) return true;
    SilenceKeeper silence(host);
    ErrorStackKeeper keep(host);
    hid_t nothing = select_nothing(host, stored);
    if (nothing < 0) return false;
    void *under = object.under, *buffer = nullptr;
    hid_t memory_type = served.memory_type;
    const bool left =
        read_below(object, 1, &under, &memory_type, &nothing, &nothing, served.dxpl, &buffer) >= 0;
    host.hdf5.H5Sclose(nothing);
    return left;
}

} // namespace sds::vol
