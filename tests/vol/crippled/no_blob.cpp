// A connector that cannot store blobs: variable-length data and references.
#include "vol_class.h"

namespace sds::vol
{

void sound_fill_class(Host &host);

void fill_class(Host &host)
{
    sound_fill_class(host);
    host.connector_class.blob_cls = {};
}

} // namespace sds::vol
