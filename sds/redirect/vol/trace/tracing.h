// The trace: hands reads to the spool writer of the process.
#pragma once

#include "branch.h"
#include "object.h"
#include "sds/trace_format.h"
#include "selection.h"

namespace sds::vol
{

struct KnownDataset;
struct OpenDataset;

// The writer of the process, opened at its first read.
struct Tracer {
    bool opened;
    sds_trace_writer *writer;
};
extern Tracer tracer;
SDS_COLD void open_trace();

inline bool is_trace_open()
{
    return __atomic_load_n(&tracer.opened, __ATOMIC_ACQUIRE);
}

// False without a home or spool directory, and where the environment says so.
inline bool is_tracing()
{
    if (seldom(!is_trace_open())) open_trace();
    return tracer.writer;
}

// A read of all of a dataset, or of a box in it, of few axes.
struct TracedBox {
    uint32_t dataset;
    int8_t rank;
    bool is_whole;
    bool collective;
    int64_t served_by;
    const int64_t *first;
    const int64_t *last;
};

// False where the dataset's id is of the process that this one was forked from.
inline bool trace_box(const TracedBox &box, const sds_trace_span &span)
{
    const auto kind = box.is_whole ? SDS_SELECT_ALL : SDS_SELECT_HYPERSLAB;
    const sds_trace_box added = {box.dataset,
                                 box.rank,
                                 static_cast<int8_t>(kind),
                                 static_cast<int8_t>(box.collective),
                                 span,
                                 box.served_by,
                                 box.first,
                                 box.last};
    return sds_trace_add_box(tracer.writer, &added);
}

void trace_read(OpenDataset &dataset, const Selection &selection, const sds_trace_span &span,
                int64_t served_by, bool collective);

// The same for a read of the original that HDF5 has carried out, which says what the next may be
// like.
void trace_done(Object &object, OpenDataset &dataset, hid_t file_space, hid_t dxpl,
                const sds_trace_span &span);

// The same of a bare dataset. False where the trace does not know it: in the child of a fork.
bool trace_known(const Host &host, const KnownDataset &known, hid_t file_space, hid_t dxpl,
                 const sds_trace_span &span);

// In the child of a fork: it begins its own.
void renew_trace();

// Write what is buffered.
void flush_trace();
// The same when a file is closed, at most once a second: an interactive session may then pause
// for hours. While the process is young, once in a sixteenth of its life: it may end without
// warning.
void flush_trace_at_close();

} // namespace sds::vol
