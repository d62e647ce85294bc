#include "sds/read_engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "block_check.h"
#include "cache_probe.h"
#include "exec.h"
#include "mapping.h"
#include "memory_limit.h"
#include "planner.h"
#include "read_ahead.h"

/* One run up to this length is read without a plan: whatever the cache holds, there is one way that
 * nothing is faster than. */
#define PLAIN_BYTES (INT64_C(1) << 20)

/* Plans that one read goes through: the cache may turn out to be in another state than was found,
 * and again. The last one is carried out to the end. */
#define MAX_PLANS 8

/* Reads of this many pieces begin as if they were cached: the first calls tell; but not of pieces
 * that are so long, as to ask for one makes the kernel read it. Of so few, not even a plan is made,
 * and a hole of this size is read rather than jumped. */
#define FEW_PIECES 64
#define LONG_BYTES (INT64_C(64) << 10)
#define VERY_FEW_PIECES 4
#define SHORT_LIST_PIECES 512
#define CLOSE_BYTES 4096

/* A fault enters the cached pages within this distance. */
#define ENTERED_BYTES (INT64_C(64) << 10)

/* Reads of less are not considered for reading past the page cache. */
#define LEAST_DIRECT_BYTES (INT64_C(4) << 20)

/* So many times as fast it has to be where the cache could keep what is read. */
#define DIRECT_ADVANTAGE 1.25

void sds_announce_range(int fd, int64_t offset_bytes, int64_t n_bytes)
{
    if (n_bytes < LEAST_DIRECT_BYTES) sds__announce_missing(fd, offset_bytes, n_bytes);
}

void sds_announce_rest(sds_file *file, int64_t offset_bytes, int64_t n_bytes)
{
    sds__announce(file->fd, offset_bytes, sds__least(n_bytes, SDS_ANNOUNCED_BYTES));
}

sds_status sds_file_open(int fd, const sds_file_options *options, sds_file **out)
{
    const char *path = options != NULL ? options->path : NULL;
    const size_t path_bytes = path != NULL ? strlen(path) + 1 : 0;
    sds_file *file = calloc(1, sizeof *file + path_bytes);
    *out = file;
    if (file == NULL) return SDS_ENOMEM;
    file->fd = fd;
    file->direct_fd = SDS__DIRECT_UNTRIED;
    file->was_missing = 1; /* nothing is known: a look takes less than to begin wrongly */
    if (options == NULL) return SDS_OK;
    file->may_map = options->may_map;
    file->parameters = options->parameters;
    file->blocks = options->blocks;
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

/* Reading past the page cache leaves nothing there for the next read (docs/decisions/0007): it is
 * considered where the cache could not keep what is read, or where it was measured to be faster by
 * far. */
static int is_worth_direct(const sds_file *file, const sds_read_plan *plan, int64_t room_bytes)
{
    const sds_io_parameters *costs = file->parameters;
    if (plan->bytes_read > room_bytes) return 1;
    return costs != NULL && costs->is_measured && plan->bytes_read >= costs->direct_min_bytes &&
           costs->direct_s_per_byte * DIRECT_ADVANTAGE <= costs->buffered_s_per_byte;
}

static sds_status plan_access(const sds_file *file, const sds__access *access,
                              const sds_read_options *options, sds_plan_given *given,
                              sds_read_plan *out)
{
    given->may_read_directly = 0;
    const sds_status status = sds__plan_access(access, file->parameters, options, given, out);
    if (status != SDS_OK || out->strategy != SDS_STRATEGY_AUTO || out->cache == SDS_CACHE_WARM ||
        out->bytes_read < LEAST_DIRECT_BYTES || !sds__may_read_directly(file))
        return status;
    given->cache_room_bytes = sds__cache_room_bytes();
    given->may_read_directly =
        is_worth_direct(file, out, given->cache_room_bytes) &&
        (out->bytes_read > given->cache_room_bytes || !sds__was_read_directly(file, access));
    return given->may_read_directly
               ? sds__plan_access(access, file->parameters, options, given, out)
               : SDS_OK;
}

/* A look takes as long as to load dozens of runs. Where the last read loaded all of its own, a few
 * looks do: the loads themselves notice what is missing after all. */
static sds_cache probe(sds_file *file, const sds__access *access, const sds__place *place)
{
    const sds__group whole = sds__access_whole(access);
    return sds__was_loaded(file, whole.offset, whole.length)
               ? sds__probe_again(file, access, place)
               : sds__probe_access(file, access, place);
}

/* Whether as much as it loads may be resident: else every read of it enters the pages anew. */
static int stays_mapped(const sds__group *whole)
{
    const int64_t each = whole->bytes_useful + whole->n_pieces * ENTERED_BYTES;
    return sds__least(whole->length, each) <= sds__max_mapped_bytes();
}

/* What is known of the file, for what is left of a read. */
static void look(sds_file *file, const sds__access *access, const sds__place *place,
                 sds_plan_given *given)
{
    if (given->cache == SDS_CACHE_UNKNOWN) given->cache = probe(file, access, place);
    given->may_map = given->may_map && given->cache == SDS_CACHE_WARM && sds__may_map(file);
    if (!given->may_map) return;
    const sds__group whole = sds__access_whole(access);
    given->is_mapped =
        sds__counts_as_mapped(file, whole.offset, whole.length) && stays_mapped(&whole);
}

/* From a place on. */
static sds_status read_by_plans(sds_file *file, const sds__access *access,
                                const sds_read_options *options, sds__place place,
                                sds_read_report *report)
{
    const int64_t n_pieces = sds__access_pieces(access);
    sds_plan_given given = {.cache = options->cache, .may_map = 1, .may_queue = 1};
    sds_read_options asked = *options;
    const sds__group whole = sds__access_whole(access);
    int is_assumed = sds__is_default(options) && n_pieces <= FEW_PIECES && place.piece == 0 &&
                     whole.bytes_useful < n_pieces * LONG_BYTES;
    if (is_assumed) given.cache = SDS_CACHE_WARM;
    for (int n = 1;; n++) {
        look(file, access, &place, &given);
        if (options->only_cached && given.cache != SDS_CACHE_WARM) return SDS_ENOENT;
        const sds_status planned = plan_access(file, access, &asked, &given, &report->plan);
        if (planned != SDS_OK) return planned;
        report->cache = given.cache;
        sds_read_plan plan = report->plan;
        if (is_assumed && plan.executor == SDS_EXECUTOR_MAPPED) {
            is_assumed = 0;
            given.cache = probe(file, access, &place);
            if (given.cache != SDS_CACHE_WARM) continue;
        }
        /* What was asked for by name, or what the cache holds changes as fast as it is looked at:
         * carry on regardless. */
        if (asked.executor != SDS_EXECUTOR_ANY || n >= MAX_PLANS) plan.cache = SDS_CACHE_UNKNOWN;
        const sds_status status = run_of(plan.executor)(file, access, &plan, &place, report);
        if (status != SDS_OK || place.piece >= n_pieces) return status;
        asked.cache = given.cache = SDS_CACHE_UNKNOWN;
        asked.executor = SDS_EXECUTOR_ANY;
        given.may_map = plan.executor != SDS_EXECUTOR_MAPPED && given.may_map;
    }
}

/* Whether a plan takes longer than it could save: of a few pieces, and of some more of a list that
 * lies far apart where no mapping may serve it. */
static int are_very_few(sds_file *file, const sds__access *access, const sds__group *whole)
{
    if (whole->bytes_useful >= whole->n_pieces * LONG_BYTES) return 0;
    if (whole->n_pieces <= VERY_FEW_PIECES) return 1;
    return access->runs == NULL && whole->n_pieces <= SHORT_LIST_PIECES &&
           whole->length > (whole->n_pieces - 1) * CLOSE_BYTES && !sds__can_map(file);
}

/* What lies close together by one call, the others by one each. */
static sds_status read_very_few(sds_file *file, const sds__access *access,
                                const sds_read_options *options, const sds__group *whole,
                                sds_read_report *report)
{
    const int is_close = whole->length <= (whole->n_pieces - 1) * CLOSE_BYTES;
    sds_read_plan *plan = &report->plan;
    sds__place place = {0, 0};
    report->cache = plan->cache = SDS_CACHE_WARM;
    plan->executor = is_close ? SDS_EXECUTOR_SIEVE : SDS_EXECUTOR_PREAD;
    plan->runs = whole->n_pieces;
    plan->requests = is_close ? 1 : whole->n_pieces;
    plan->bytes_useful = whole->bytes_useful;
    plan->bytes_read = is_close ? whole->length : whole->bytes_useful;
    plan->memory_bytes = is_close ? whole->length : 0;
    plan->max_hole_bytes = is_close ? SDS__JOIN_ALL : SDS__JOIN_NOTHING;
    plan->group_bytes = SDS__MAX_CALL_BYTES;
    plan->queue_depth = 1;
    plan->only_cached = options->only_cached;
    const sds_status status = sds__run_calls(file, access, plan, &place, report);
    if (status != SDS_OK || place.piece >= whole->n_pieces) return status;
    return read_by_plans(file, access, options, place, report);
}

void sds_file_given(sds_file *file, sds_plan_given *out)
{
    memset(out, 0, sizeof *out);
    out->may_map = sds__may_map(file);
    out->may_queue = 1;
}

static sds_cache probe_all(sds_file *file, const sds__access *access)
{
    const sds__place begin = {0, 0};
    if (sds__access_check(access) != SDS_OK || sds__access_pieces(access) == 0)
        return SDS_CACHE_UNKNOWN;
    return sds__probe_access(file, access, &begin);
}

sds_cache sds_probe_runs(sds_file *file, const sds_runs *runs)
{
    const sds__access access = {.runs = runs};
    return probe_all(file, &access);
}

sds_cache sds_probe_pieces(sds_file *file, size_t n, const sds_piece pieces[])
{
    const sds__access access = {.n = n, .pieces = pieces};
    return probe_all(file, &access);
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
    if (file->blocks != NULL) {
        const sds_status sound =
            sds__check_blocks(file->blocks, file->fd, access, whole.bytes_useful);
        if (sound != SDS_OK) return sound;
    }
    uint8_t *to = sds__group_target(access, &whole);
    if (to == NULL && sds__is_default(options) && are_very_few(file, access, &whole))
        return read_very_few(file, access, options, &whole, report);
    if (to == NULL || whole.length > PLAIN_BYTES || options->only_cached)
        return read_by_plans(file, access, options, (sds__place){0, 0}, report);
    report->requests = 1;
    report->bytes_read = whole.length;
    report->plan.executor = SDS_EXECUTOR_PREAD;
    report->plan.runs = report->plan.requests = 1;
    report->plan.bytes_useful = report->plan.bytes_read = whole.length;
    return sds__read_range(file->fd, to, whole.length, whole.offset, &file->was_missing);
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

const char *sds_queue_name(sds_queue queue)
{
    static const char *const names[] = {"none", "ring", "threads"};
    return queue >= SDS_QUEUE_NONE && queue <= SDS_QUEUE_THREADS ? names[queue] : NULL;
}
