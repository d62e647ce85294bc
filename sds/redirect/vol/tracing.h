// The trace: hands reads to the spool writer of the process.
#pragma once

#include "object.h"
#include "sds/tick_clock.h"
#include "selection.h"

namespace sds::vol
{

struct OpenDataset;

// By which reads are timed; nullptr where they are not traced: without a home or spool directory,
// and where the environment says so.
const sds_tick_clock *trace_clock();

void trace_read(OpenDataset &dataset, const Selection &selection, const sds_tick_span &span,
                int64_t served_by, bool collective);

// Write what is buffered.
void flush_trace();
// The same when a file is closed, at most once a second: an interactive session may then pause
// for hours. While the process is young, once in a sixteenth of its life: it may end without
// warning.
void flush_trace_at_close();

} // namespace sds::vol
