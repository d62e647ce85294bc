// A connector that never looks again whether the file is still the one its table describes.
#include "source_freshness.h"

namespace sds::vol
{

bool is_fresh(OpenFile &)
{
    return true;
}

} // namespace sds::vol
