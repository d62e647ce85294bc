// A connector without the callbacks through which HDF5 asks for native-only operations.
#include "vol_class.h"

namespace sds::vol
{

void sound_fill_class(Host &host);

void fill_class(Host &host)
{
    sound_fill_class(host);
    H5VL_class_t &connector = host.connector_class;
    connector.attr_cls.optional = nullptr;
    connector.dataset_cls.optional = nullptr;
    connector.datatype_cls.optional = nullptr;
    connector.file_cls.optional = nullptr;
    connector.group_cls.optional = nullptr;
    connector.link_cls.optional = nullptr;
    connector.object_cls.optional = nullptr;
    connector.blob_cls.optional = nullptr;
    connector.optional = nullptr;
}

} // namespace sds::vol
