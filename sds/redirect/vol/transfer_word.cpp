#include "transfer_word.h"

#include "error_stack.h"
#include "read_below.h"

namespace sds::vol
{

bool leave_word(const Object &object, const sds_trace_dataset &stored, const ReadRequest &served)
{
    const Host &host = *object.host;
    if (!host.hdf5.H5Pget_dxpl_mpio || served.dxpl == 0 || served.dxpl == *host.default_dxpl)
        return true;
    hsize_t extent[SDS_MAX_RANK];
    for (int32_t axis = 0; axis < stored.rank; axis++)
        extent[axis] = static_cast<hsize_t>(stored.extent[axis]);
    SilenceKeeper silence(host);
    ErrorStackKeeper keep(host);
    hid_t nothing = host.hdf5.H5Screate_simple(stored.rank, extent, nullptr);
    if (nothing < 0) return false;
    void *under = object.under, *buffer = nullptr;
    hid_t memory_type = served.memory_type;
    const bool left =
        host.hdf5.H5Sselect_none(nothing) >= 0 &&
        read_below(object, 1, &under, &memory_type, &nothing, &nothing, served.dxpl, &buffer) >= 0;
    host.hdf5.H5Sclose(nothing);
    return left;
}

} // namespace sds::vol
