#include "sds/read_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "file_read.h"
#include "sds/permute.h"

/* From this length on runs are read in place by one preadv, gaps into a scratch buffer, which saves
 * copying them. */
#define VECTOR_RUN_BYTES 4096
#define MAX_SEGMENTS 1024 /* IOV_MAX of Linux */
#define VECTOR_SPAN_BYTES (8 << 20)

#define MAX_STRIPS 256

/* Runs of the innermost level that follow each other by its stride. */
typedef struct {
    int64_t offset;
    int64_t n_runs;
} strip;

/* What one request covers. */
typedef struct {
    int64_t offset;
    int64_t end;
    int64_t n_runs;
    int32_t n_strips;
    strip strips[MAX_STRIPS];
} group;

typedef struct {
    int fd;
    const sds_runs *runs;
    int64_t inner_count; /* of the innermost level; 1 where there is none */
    int64_t inner_stride;
    int64_t max_gap_bytes;
    int64_t span_bytes; /* of a group */
    int64_t max_group_runs;
    int64_t buffer_bytes;
    uint8_t *buffer;        /* of the sieve, or scratch for gaps; allocated with the first need */
    struct iovec *segments; /* likewise; neither is on the stack, which may be a small thread's */
    uint8_t *out;
    sds_read_report report;
    int is_slow;
} engine;

/* Where the walk over the runs is: the outer levels, and the run within the innermost one. */
typedef struct {
    int64_t index[2 * SDS_MAX_RANK];
    int64_t offset; /* of run 0 of the innermost level */
    int64_t inner;
    int done;
} position;

static void advance_outer(const sds_runs *runs, position *at)
{
    at->inner = 0;
    for (int32_t l = runs->n_levels - 2; l >= 0; l--) {
        const sds_level *level = &runs->level[l];
        at->offset += level->stride_bytes;
        if (++at->index[l] < level->count) return;
        at->offset -= level->count * level->stride_bytes;
        at->index[l] = 0;
    }
    at->done = 1;
}

static void advance(const engine *on, position *at, int64_t n_runs)
{
    at->inner += n_runs;
    if (at->inner == on->inner_count) advance_outer(on->runs, at);
}

/* The runs from a position on that one request reads; the position moves behind them. */
static void next_group(const engine *on, position *at, group *out)
{
    const int64_t run_bytes = on->runs->run_bytes;
    out->offset = out->end = at->offset + at->inner * on->inner_stride;
    out->n_runs = 0;
    out->n_strips = 0;
    while (!at->done && out->n_strips < MAX_STRIPS) {
        const int64_t offset = at->offset + at->inner * on->inner_stride;
        const int64_t room = out->offset + on->span_bytes - offset;
        if (out->n_runs > 0 && (offset < out->end || offset - out->end > on->max_gap_bytes ||
                                room < run_bytes || out->n_runs >= on->max_group_runs))
            return;
        int64_t n = 1;
        if (on->inner_count > 1 && on->inner_stride - run_bytes <= on->max_gap_bytes &&
            room > run_bytes)
            n += (room - run_bytes) / on->inner_stride;
        if (n > on->inner_count - at->inner) n = on->inner_count - at->inner;
        if (n > on->max_group_runs - out->n_runs) n = on->max_group_runs - out->n_runs;
        out->strips[out->n_strips++] = (strip){offset, n};
        out->n_runs += n;
        out->end = offset + (n - 1) * on->inner_stride + run_bytes;
        advance(on, at, n);
    }
}

static sds_status read_segments(int fd, struct iovec *segments, int n_segments, int64_t offset)
{
    while (n_segments > 0) {
        ssize_t got = preadv(fd, segments, n_segments, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return SDS_EIO;
        if (got == 0) return SDS_ESHORT;
        offset += got;
        while (n_segments > 0 && (size_t)got >= segments->iov_len) {
            got -= (ssize_t)segments->iov_len;
            segments++;
            n_segments--;
        }
        if (got > 0) {
            segments->iov_base = (uint8_t *)segments->iov_base + got;
            segments->iov_len -= (size_t)got;
        }
    }
    return SDS_OK;
}

/* Have the kernel begin to read the next runs; their number. */
static int announce(const engine *on, position at)
{
    const int64_t run_bytes = on->runs->run_bytes;
    int n = 0;
    while (n < SDS__MAX_ANNOUNCED && (n + 1) * run_bytes <= SDS__MAX_ANNOUNCED_BYTES && !at.done) {
        (void)posix_fadvise(on->fd, (off_t)(at.offset + at.inner * on->inner_stride),
                            (off_t)run_bytes, POSIX_FADV_WILLNEED);
        advance(on, &at, 1);
        n++;
    }
    return n;
}

static sds_status read_single(engine *on, const group *of)
{
    const int64_t begin_ns = sds__monotonic_ns();
    const sds_status status = sds__read_all(on->fd, on->out, of->end - of->offset, of->offset);
    on->is_slow = sds__is_slow(begin_ns, on->runs->run_bytes);
    return status;
}

static sds_status read_vector(engine *on, const group *of)
{
    const int64_t run_bytes = on->runs->run_bytes;
    if (on->segments == NULL) on->segments = malloc(MAX_SEGMENTS * sizeof *on->segments);
    if (on->segments == NULL) return SDS_ENOMEM;
    struct iovec *segments = on->segments;
    uint8_t *out = on->out;
    int64_t end = of->offset;
    int n = 0;
    for (int32_t s = 0; s < of->n_strips; s++)
        for (int64_t i = 0; i < of->strips[s].n_runs; i++) {
            const int64_t offset = of->strips[s].offset + i * on->inner_stride;
            if (offset > end) segments[n++] = (struct iovec){on->buffer, (size_t)(offset - end)};
            segments[n++] = (struct iovec){out, (size_t)run_bytes};
            out += run_bytes;
            end = offset + run_bytes;
        }
    return read_segments(on->fd, segments, n, of->offset);
}

static sds_status read_sieve(engine *on, const group *of)
{
    const int64_t run_bytes = on->runs->run_bytes;
    const sds_status status = sds__read_all(on->fd, on->buffer, of->end - of->offset, of->offset);
    if (status != SDS_OK) return status;
    uint8_t *out = on->out;
    for (int32_t s = 0; s < of->n_strips; s++) {
        (void)sds_copy_strided(1, &of->strips[s].n_runs, &on->inner_stride, &run_bytes,
                               (size_t)run_bytes, on->buffer + (of->strips[s].offset - of->offset),
                               out);
        out += of->strips[s].n_runs * run_bytes;
    }
    return SDS_OK;
}

static sds_status read_group(engine *on, const group *of)
{
    if (of->n_runs > 1 && on->buffer == NULL) {
        on->buffer = malloc((size_t)on->buffer_bytes);
        if (on->buffer == NULL) return SDS_ENOMEM;
    }
    on->report.requests++;
    on->report.bytes_read += of->end - of->offset;
    sds_status status;
    if (of->n_runs == 1)
        status = read_single(on, of);
    else if (on->runs->run_bytes >= VECTOR_RUN_BYTES)
        status = read_vector(on, of);
    else
        status = read_sieve(on, of);
    on->out += of->n_runs * on->runs->run_bytes;
    return status;
}

static sds_status read_groups(engine *on)
{
    position at = {.offset = on->runs->first_offset};
    group *of = malloc(sizeof *of);
    if (of == NULL) return SDS_ENOMEM;
    int n_announced = 0; /* and not yet read */
    sds_status status = SDS_OK;
    while (!at.done && status == SDS_OK) {
        next_group(on, &at, of);
        status = read_group(on, of);
        if (n_announced > 0) n_announced--;
        if (of->n_runs == 1 && on->is_slow && n_announced <= SDS__MAX_ANNOUNCED / 2)
            n_announced = announce(on, at);
    }
    const int saved_errno = errno;
    free(of);
    errno = saved_errno;
    return status;
}

/* The last byte of the last run has an offset, and so has everything before it. */
static sds_status check_runs(const sds_runs *runs)
{
    int64_t end;
    int64_t total = runs->run_bytes;
    if (runs->first_offset < 0 || runs->run_bytes < 0 || runs->n_levels < 0 ||
        runs->n_levels > 2 * SDS_MAX_RANK)
        return SDS_EINVAL;
    if (__builtin_add_overflow(runs->first_offset, runs->run_bytes, &end)) return SDS_EOVERFLOW;
    for (int32_t l = 0; l < runs->n_levels; l++) {
        int64_t span;
        if (runs->level[l].count < 1 || runs->level[l].stride_bytes < 0) return SDS_EINVAL;
        if (__builtin_mul_overflow(runs->level[l].count, runs->level[l].stride_bytes, &span) ||
            __builtin_add_overflow(end, span, &end) ||
            __builtin_mul_overflow(total, runs->level[l].count, &total))
            return SDS_EOVERFLOW;
    }
    return SDS_OK;
}

sds_status sds_read_runs(int fd, const sds_runs *runs, const sds_read_options *options, void *out,
                         sds_read_report *report)
{
    const sds_read_options defaults = {0, 0};
    if (report != NULL) *report = (sds_read_report){0, 0};
    if (options == NULL) options = &defaults;
    if (options->max_gap_bytes < 0 || options->sieve_buffer_bytes < 0) return SDS_EINVAL;
    const sds_status checked = check_runs(runs);
    if (checked != SDS_OK || runs->run_bytes == 0) return checked;

    const int has_inner = runs->n_levels > 0;
    engine on = {
        .fd = fd,
        .runs = runs,
        .inner_count = has_inner ? runs->level[runs->n_levels - 1].count : 1,
        .inner_stride = has_inner ? runs->level[runs->n_levels - 1].stride_bytes : 0,
        .max_gap_bytes = options->max_gap_bytes > 0 ? options->max_gap_bytes : SDS__MAX_GAP_BYTES,
        .buffer_bytes =
            options->sieve_buffer_bytes > 0 ? options->sieve_buffer_bytes : SDS__SIEVE_BUFFER_BYTES,
        .max_group_runs = INT64_MAX,
        .out = out,
    };
    if (on.max_gap_bytes > on.buffer_bytes) on.max_gap_bytes = on.buffer_bytes;
    on.span_bytes = on.buffer_bytes;
    if (runs->run_bytes >= VECTOR_RUN_BYTES) {
        on.span_bytes = VECTOR_SPAN_BYTES;
        on.max_group_runs = MAX_SEGMENTS / 2;
    }
    const sds_status status = read_groups(&on);
    const int saved_errno = errno;
    free(on.buffer);
    free(on.segments);
    if (report != NULL) *report = on.report;
    errno = saved_errno;
    return status;
}
