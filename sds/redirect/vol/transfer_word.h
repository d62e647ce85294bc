// The word that HDF5 leaves in the transfer properties of how it made a read.
#pragma once

#include "redirect.h"
#include "sds/trace_format.h"

namespace sds::vol
{

// Have a parallel HDF5 leave word of a read that a replica has served: what it leaves of any
// independent read, for which it is given one of nothing. Other builds leave none that MPI programs
// look for. False where the word cannot be had; then the original is to be read.
bool leave_word(const Object &object, const sds_trace_dataset &stored, const ReadRequest &served);

} // namespace sds::vol
