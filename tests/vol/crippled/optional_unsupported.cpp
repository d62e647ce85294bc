// A connector that says of every optional operation that there is none.
#include "vol_class.h"

namespace sds::vol
{

void sound_fill_class(Host &host);

namespace
{

herr_t query_optional(void *, H5VL_subclass_t, int, uint64_t *flags)
{
    *flags = 0;
    return 0;
}

} // namespace

void fill_class(Host &host)
{
    sound_fill_class(host);
    host.connector_class.introspect_cls.opt_query = query_optional;
}

} // namespace sds::vol
