// A connector that leaves the tokens of objects to HDF5, which knows nothing of them.
#include "vol_class.h"

namespace sds::vol
{

void sound_fill_class(Host &host);

void fill_class(Host &host)
{
    sound_fill_class(host);
    host.connector_class.token_cls = {};
}

} // namespace sds::vol
