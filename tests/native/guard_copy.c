/* A library with a core of its own, as the connector and the Python module are. */
#include "guard.h"

__attribute__((visibility("default"))) sds__loads_end copy_guard_loads(const void *begin, size_t n,
                                                                       void (*loads)(void *),
                                                                       void *context)
{
    return sds__guard_loads(begin, n, loads, context);
}
