#include "sds/read_engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache_probe.h"
#include "exec.h"
#include "file_read.h"
#include "mapping.h"

/* One run up to this length is read by one call without a plan: whatever the cache holds, nothing
 * is faster. */
#define PLAIN_BYTES (INT64_C(1) << 20)

/* Plans that one read goes through: the cache may turn out to be in another state than was found,
 * and again. The last one is carried out to the end. */
#define MAX_PLANS 8

sds_status sds_file_open(int fd, const sds_file_options *options, sds_file **out)
{
    const char *path = options != NULL ? options->path : NULL;
    const size_t path_bytes = path != NULL ? strlen(path) + 1 : 0;
    sds_file *file = calloc(1, sizeof *file + path_bytes);
    *out = file;
    if (file == NULL) return SDS_ENOMEM;
    file->fd = fd;
    file->direct_fd = SDS__DIRECT_UNTRIED;
    if (options == NULL) return SDS_OK;
    file->may_map = options->may_map;
    file->parameters = options->parameters;
    if (path != NULL) file->path = memcpy(file + 1, path, path_bytes);
    return SDS_OK;
}

void sds_file_close(sds_file *file)
{
    if (file == NULL) return;
    const int saved_errno = errno;
    sds__close_direct(file);
    sds__mapping_free(file->mapping);
    free(file);
    errno = saved_errno;
}

static sds__run *run_of(sds_executor executor)
{
    switch (executor) {
    case SDS_EXECUTOR_MAPPED:
        return sds__run_mapped;
    case SDS_EXECUTOR_LIST:
        return sds__run_list;
    case SDS_EXECUTOR_DIRECT:
        return sds__run_direct;
    default:
        return sds__run_calls;
    }
}

static sds_status plan_access(const sds__access *access, const sds_read_options *options,
                              sds_cache cache, sds_read_plan *out)
{
    const int64_t longest = access->runs != NULL ? access->runs->run_bytes : 0;
    sds__group_totals totals;
    *out = (sds_read_plan){
        .executor = cache == SDS_CACHE_WARM ? SDS_EXECUTOR_SIEVE : SDS_EXECUTOR_LIST,
        .cache = cache,
        .max_hole_bytes = 16 << 10,
        .group_bytes = 256 << 10,
        .memory_bytes = 32 << 20,
        .queue_depth = 128,
        .regions_per_request = 64,
    };
    if (longest >= 4096) out->group_bytes = 8 << 20;
    if (longest >= 4096 && cache == SDS_CACHE_WARM) out->executor = SDS_EXECUTOR_VECTOR;
    sds__group_totals_of(access, out->max_hole_bytes, out->group_bytes, INT64_MAX, &totals);
    out->requests = totals.groups;
    out->bytes_useful = totals.bytes_useful;
    out->bytes_read = totals.bytes_read;
    (void)options;
    return SDS_OK;
}

static int is_behind(const sds__place *place, int64_t n_pieces)
{
    return place->piece >= n_pieces;
}

static sds_status read_by_plans(sds_file *file, const sds__access *access,
                                const sds_read_options *options, sds_read_report *report)
{
    const int64_t n_pieces = sds__access_pieces(access);
    sds__place place = {0, 0};
    sds_cache cache = options->cache;
    for (int n = 1;; n++) {
        if (cache == SDS_CACHE_UNKNOWN) cache = sds__probe_access(file, access, &place);
        if (n == 1) report->cache = cache;
        sds_status status = plan_access(access, options, cache, &report->plan);
        if (status != SDS_OK) return status;
        if (n == MAX_PLANS && report->plan.strategy == SDS_STRATEGY_AUTO) {
            report->plan.executor = SDS_EXECUTOR_LIST;
            report->plan.cache = SDS_CACHE_UNKNOWN; /* not looked at any more */
        }
        status = run_of(report->plan.executor)(file, access, &report->plan, &place, report);
        if (status != SDS_OK || is_behind(&place, n_pieces)) return status;
        cache = SDS_CACHE_UNKNOWN;
    }
}

static sds_status read_access(sds_file *file, const sds__access *access,
                              const sds_read_options *options, sds_read_report *report)
{
    static const sds_read_options defaults;
    sds_read_report unwanted;
    if (options == NULL) options = &defaults;
    if (report == NULL) report = &unwanted;
    memset(report, 0, sizeof *report);
    if (options->queue_depth < 0 || options->regions_per_request < 0 ||
        options->sieve_buffer_bytes < 0 || options->max_memory_bytes < 0)
        return SDS_EINVAL;
    const sds_status checked = sds__access_check(access);
    if (checked != SDS_OK || sds__access_pieces(access) == 0) return checked;
    const sds__group whole = sds__access_whole(access);
    uint8_t *to = sds__group_target(access, &whole);
    if (to == NULL || whole.length > PLAIN_BYTES)
        return read_by_plans(file, access, options, report);
    report->requests = 1;
    report->bytes_read = whole.length;
    report->plan.executor = SDS_EXECUTOR_PREAD;
    report->plan.runs = report->plan.requests = 1;
    report->plan.bytes_useful = report->plan.bytes_read = whole.length;
    return sds__read_all(file->fd, to, whole.length, whole.offset);
}

sds_status sds_read_runs(sds_file *file, const sds_runs *runs, const sds_read_options *options,
                         void *out, sds_read_report *report)
{
    const sds__access access = {.runs = runs, .out = out};
    return read_access(file, &access, options, report);
}

sds_status sds_read_pieces(sds_file *file, size_t n, const sds_piece pieces[],
                           const sds_read_options *options, void *out, sds_read_report *report)
{
    const sds__access access = {.n = n, .pieces = pieces, .out = out};
    return read_access(file, &access, options, report);
}
