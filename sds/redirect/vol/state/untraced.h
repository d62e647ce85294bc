// The HDF5 libraries of programs that run natively because SDS cannot serve them, noted in the home
// for the commands that are asked why there is no trace. Libraries that ask for no connector are
// noted by the preloaded library (abi/preload_note.c), in lines of the same form.
#pragma once

#include "host.h"

namespace sds::vol
{

// Once for each library of a process. version: 0.0.0 where it is not known.
void note_untraced(const Image &library, const Version &version, const char *reason);

} // namespace sds::vol
