// Whether a source is still what it was when it was opened.
#pragma once

#include <stdint.h>

namespace sds::vol
{

struct OpenFile; // open_file.h

// How long a look at a file server is relied on, and a file that is written goes on without a
// table.
constexpr int64_t freshness_interval_ns = int64_t{2} * 1000000000;

// True while the file is the one that the table describes, and where it was. To be asked before
// each read that is to be served: a look costs less than a microsecond. At most every two seconds
// it asks a file server as well, where there is one.
bool is_fresh(OpenFile &file);

} // namespace sds::vol
