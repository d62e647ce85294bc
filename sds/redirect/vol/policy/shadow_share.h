// Which reads a replica in shadow serves of those for which it is chosen.
#pragma once

#include <stdint.h>

namespace sds::vol
{

// By chance, whatever threads, ranks, children of fork and programs read in turn.
bool is_in_share(int32_t permille);

} // namespace sds::vol
