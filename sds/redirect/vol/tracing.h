// The trace: hands reads to the spool writer of the process.
#pragma once

#include "object.h"
#include "selection.h"

namespace sds::vol
{

struct OpenDataset;

// False without a home or spool directory, and where the environment says so.
bool is_tracing();

void trace_read(OpenDataset &dataset, const Selection &selection, int64_t start_ns,
                int64_t elapsed_ns, int64_t served_by, bool collective);

// Write what is buffered.
void flush_trace();
// The same when a file is closed, at most once a second: an interactive session may then pause
// for hours.
void flush_trace_at_close();

} // namespace sds::vol
