// A connector that claims to be able to do nothing.
#include "vol_class.h"

namespace sds::vol
{

void sound_fill_class(Host &host);

namespace
{

herr_t get_capabilities(const void *, uint64_t *flags)
{
    *flags = 0;
    return 0;
}

} // namespace

void fill_class(Host &host)
{
    sound_fill_class(host);
    host.connector_class.cap_flags = 0;
    host.connector_class.introspect_cls.get_cap_flags = get_capabilities;
}

} // namespace sds::vol
