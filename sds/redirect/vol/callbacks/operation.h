// Which operation an argument struct stands for, where that is all the connector looks at.
#pragma once

#include <string.h>

namespace sds::vol
{

// Every such struct of the VOL begins with its operation, an enum.
inline int operation_of(const void *args)
{
    int operation;
    memcpy(&operation, args, sizeof operation);
    return operation;
}

} // namespace sds::vol
