#include "tracing.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"
#include "known_datasets.h"
#include "memory_budget.h"
#include "open_dataset.h"
#include "read_filter.h"
#include "redirect.h"
#include "sds/trace_format.h"

namespace sds::vol
{

Tracer tracer = {false, nullptr};

namespace
{

pthread_once_t opened_once = PTHREAD_ONCE_INIT;
int64_t flushed_ns = 0;
int64_t begun_ns = 0; // when this process began to trace

template <size_t N> void read_user(char (&out)[N])
{
    // Not from the password database: on clusters that asks a server.
    const char *named = getenv("USER");
    if (named && *named)
        snprintf(out, N, "%s", named);
    else
        snprintf(out, N, "%lu", static_cast<unsigned long>(getuid()));
}

int take_traced(size_t n_bytes)
{
    return take_memory(MemoryUse::traced, static_cast<int64_t>(n_bytes));
}

void give_traced(size_t n_bytes)
{
    give_memory(MemoryUse::traced, static_cast<int64_t>(n_bytes));
}

void open_writer()
{
    if (!config().trace) return;
    // Static, for the stack may be a small thread's; this runs once.
    static char spool[PATH_MAX];
    const int n = snprintf(spool, sizeof spool, "%s/spool", config().home);
    struct stat found;
    if (n < 0 || static_cast<size_t>(n) >= sizeof spool || stat(spool, &found) != 0 ||
        !S_ISDIR(found.st_mode))
        return;
    char host[256] = "", user[256];
    gethostname(host, sizeof host - 1);
    read_user(user);
    sds_trace_process process = {};
    process.pid = getpid();
    process.rank = config().rank;
    process.n_ranks = config().n_ranks;
    process.start_ns = realtime_ns();
    process.host = host;
    process.job_id = config().job_id;
    process.user = user;
    sds_trace_options options = {};
    options.spool_dir = spool;
    options.take_memory = take_traced;
    options.give_memory = give_traced;
    tracer.writer = sds_trace_writer_new(&options, &process);
    begun_ns = monotonic_ns();
}

// The dataset's id in the trace, given when it is first needed; 0: its reads are but counted.
uint32_t id_of(OpenDataset &dataset)
{
    uint32_t id = __atomic_load_n(&dataset.trace_id, __ATOMIC_ACQUIRE);
    if (id != 0) return id;
    sds_trace_dataset description;
    describe_for_trace(dataset, description);
    id = sds_trace_add_dataset(tracer.writer, &description);
    __atomic_store_n(&dataset.trace_id, id, __ATOMIC_RELEASE);
    return id;
}

bool is_short_box(const Selection &selection)
{
    if (selection.slab.rank > SDS_TRACE_BOX_RANK) return false;
    if (selection.kind == SDS_SELECT_ALL) return true;
    if (selection.kind != SDS_SELECT_HYPERSLAB) return false;
    for (int32_t axis = 0; axis < selection.slab.rank; axis++)
        if (selection.slab.stride[axis] != 1 || selection.slab.block[axis] != 1 ||
            selection.slab.count[axis] < 1)
            return false;
    return true;
}

int add_box(uint32_t dataset, const Selection &selection, const sds_trace_span &span,
            int64_t served_by, bool collective)
{
    const sds_hyperslab &slab = selection.slab;
    int64_t last[SDS_TRACE_BOX_RANK];
    for (int32_t axis = 0; axis < slab.rank; axis++)
        last[axis] = slab.start[axis] + slab.count[axis] - 1;
    return trace_box({dataset, static_cast<int8_t>(slab.rank), selection.kind == SDS_SELECT_ALL,
                      collective, served_by, slab.start, last},
                     span);
}

int add(uint32_t dataset, const Selection &selection, const sds_trace_span &span, int64_t served_by,
        bool collective)
{
    if (is_short_box(selection)) return add_box(dataset, selection, span, served_by, collective);
    const sds_trace_timed_read read = {
        dataset, selection.kind, &selection.slab, selection.n_elements, served_by, collective,
        span};
    return sds_trace_add_timed_read(tracer.writer, &read);
}

// The plugin stays loaded until the process ends; HDF5 may never be shut down before that.
__attribute__((destructor)) void flush_at_exit()
{
    flush_trace();
}

} // namespace

void open_trace()
{
    pthread_once(&opened_once, open_writer);
    __atomic_store_n(&tracer.opened, true, __ATOMIC_RELEASE);
}

void renew_trace()
{
    if (!tracer.writer) return;
    begun_ns = monotonic_ns();
    flushed_ns = 0;
    sds_trace_after_fork(tracer.writer, getpid());
}

void trace_done(Object &object, OpenDataset &dataset, hid_t file_space, hid_t dxpl,
                const sds_trace_span &span)
{
    if (!dataset.is_traced) return;
    const Host &host = *object.host;
    const StoredDataset &stored = dataset.description;
    Selection selection;
    select_done(host, file_space, stored.rank, stored.extent, dataset.reads_boxes, selection);
    const bool is_short =
        (dataset.reads_boxes || file_space == H5S_ALL) && stored.rank <= SDS_TRACE_BOX_RANK;
    dataset.box_rank = is_short ? static_cast<int8_t>(stored.rank) : int8_t{-1};
    if (selection.n_elements >= min_elements) {
        const sds_hyperslab &slab = selection.slab;
        int64_t last[SDS_MAX_RANK];
        for (int32_t axis = 0; axis < stored.rank; axis++)
            last[axis] = slab.start[axis] + (slab.count[axis] - 1) * slab.stride[axis] +
                         slab.block[axis] - 1;
        look_behind(object, dataset, selection.n_elements, slab.start, last);
    }
    trace_read(dataset, selection, span, 0, is_collective(host, dxpl));
}

void trace_read(OpenDataset &dataset, const Selection &selection, const sds_trace_span &span,
                int64_t served_by, bool collective)
{
    if (!dataset.is_traced) return;
    if (add(id_of(dataset), selection, span, served_by, collective)) return;
    // The id is one of the process that this one was forked from.
    __atomic_store_n(&dataset.trace_id, 0U, __ATOMIC_RELEASE);
    add(id_of(dataset), selection, span, served_by, collective);
}

bool trace_known(const Host &host, const KnownDataset &known, hid_t file_space, hid_t dxpl,
                 const sds_trace_span &span)
{
    int64_t extent[most_known_rank], first[SDS_MAX_RANK], last[SDS_MAX_RANK];
    extent_of(known, extent);
    const bool collective = is_collective(host, dxpl);
    const bool is_whole = file_space == H5S_ALL;
    static_assert(most_known_rank <= SDS_TRACE_BOX_RANK, "what is known is traced the short way");
    if (is_whole)
        see_whole(known.rank, extent, first, last);
    else if (!known.reads_boxes ||
             see_box(host, file_space, known.rank, extent, first, last) == 0) {
        Selection selection;
        bool reads_boxes = false;
        select_done(host, file_space, known.rank, extent, reads_boxes, selection);
        return add(known.trace_id, selection, span, 0, collective);
    }
    return trace_box(
        {known.trace_id, static_cast<int8_t>(known.rank), is_whole, collective, 0, first, last},
        span);
}

void flush_trace()
{
    // Another thread may be opening it: then it has nothing to write yet.
    if (__atomic_load_n(&tracer.opened, __ATOMIC_ACQUIRE) && tracer.writer)
        sds_trace_flush(tracer.writer);
}

void flush_trace_at_close()
{
    if (!__atomic_load_n(&tracer.opened, __ATOMIC_ACQUIRE)) return;
    // Workers of a pool end by _exit or a signal, soon after they have closed their files.
    const int64_t now_ns = monotonic_ns();
    const int64_t share_of_life_ns = (now_ns - begun_ns) / 16;
    const int64_t interval_ns = share_of_life_ns < 1000000000 ? share_of_life_ns : 1000000000;
    if (now_ns - __atomic_load_n(&flushed_ns, __ATOMIC_RELAXED) < interval_ns) return;
    __atomic_store_n(&flushed_ns, now_ns, __ATOMIC_RELAXED);
    flush_trace();
}

} // namespace sds::vol
