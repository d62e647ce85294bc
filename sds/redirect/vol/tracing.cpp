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
#include "open_dataset.h"
#include "sds/trace_format.h"

namespace sds::vol
{
namespace
{

sds_trace_writer *writer = nullptr;
pthread_once_t opened_once = PTHREAD_ONCE_INIT;
int64_t flushed_ns = 0;

template <size_t N> void read_executable(char (&out)[N])
{
    const ssize_t n = readlink("/proc/self/exe", out, N - 1);
    out[n > 0 ? n : 0] = '\0';
}

template <size_t N> void read_user(char (&out)[N])
{
    // Not from the password database: on clusters that asks a server.
    const char *named = getenv("USER");
    if (named && *named)
        snprintf(out, N, "%s", named);
    else
        snprintf(out, N, "%lu", static_cast<unsigned long>(getuid()));
}

void open_writer()
{
    if (!config().trace) return;
    // Static, for the stack may be a small thread's; this runs once.
    static char spool[PATH_MAX], executable[PATH_MAX];
    const int n = snprintf(spool, sizeof spool, "%s/spool", config().home);
    struct stat found;
    if (n < 0 || static_cast<size_t>(n) >= sizeof spool || stat(spool, &found) != 0 ||
        !S_ISDIR(found.st_mode))
        return;
    char host[256] = "", user[256];
    gethostname(host, sizeof host - 1);
    read_executable(executable);
    read_user(user);
    sds_trace_process process = {};
    process.pid = getpid();
    process.rank = config().rank;
    process.n_ranks = config().n_ranks;
    process.start_ns = realtime_ns();
    process.host = host;
    process.executable = executable;
    process.job_id = config().job_id;
    process.user = user;
    sds_trace_options options = {};
    options.spool_dir = spool;
    writer = sds_trace_writer_new(&options, &process);
}

// The plugin stays loaded until the process ends; HDF5 may never be shut down before that.
__attribute__((destructor)) void flush_at_exit()
{
    flush_trace();
}

// Behind the rank a slab means nothing. After a read from a disk nothing of it is in the
// processor's cache, and every line that is left alone is time saved.
void copy_axes(const sds_hyperslab &from, sds_hyperslab &to)
{
    const size_t n = static_cast<size_t>(from.rank) * sizeof(int64_t);
    to.rank = from.rank;
    memcpy(to.start, from.start, n);
    memcpy(to.stride, from.stride, n);
    memcpy(to.count, from.count, n);
    memcpy(to.block, from.block, n);
}

} // namespace

bool is_tracing()
{
    pthread_once(&opened_once, open_writer);
    return writer != nullptr;
}

void trace_read(OpenDataset &dataset, const Selection &selection, int64_t start_ns,
                int64_t elapsed_ns, int64_t served_by, bool collective)
{
    if (!dataset.is_traced) return;
    if (dataset.trace_id == 0)
        dataset.trace_id = sds_trace_add_dataset(writer, &dataset.description);
    if (dataset.trace_id == 0) return;
    sds_trace_read read;
    read.dataset = dataset.trace_id;
    read.kind = selection.kind;
    copy_axes(selection.slab, read.slab);
    read.n_elements = selection.n_elements;
    read.start_ns = start_ns;
    read.elapsed_ns = elapsed_ns;
    read.served_by = served_by;
    read.collective = collective ? 1 : 0;
    sds_trace_add_read(writer, &read);
}

void flush_trace()
{
    if (writer) sds_trace_flush(writer);
}

void flush_trace_at_close()
{
    constexpr int64_t interval_ns = 1000000000;
    const int64_t now_ns = monotonic_ns();
    if (now_ns - __atomic_load_n(&flushed_ns, __ATOMIC_RELAXED) < interval_ns) return;
    __atomic_store_n(&flushed_ns, now_ns, __ATOMIC_RELAXED);
    flush_trace();
}

} // namespace sds::vol
