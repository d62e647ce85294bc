/* Reads a request after the other, by pread, through a small sieve, or by preadv.
 *
 * Where the plan takes the cache for warm, calls ask for what the cache holds (RWF_NOWAIT): the
 * first that finds something missing ends the plan. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "deadline.h"
#include "exec.h"
#include "file_read.h"

/* To ask for what is cached takes 60 ns more than to read: a sixth of the shortest call. So only
 * long ranges are always read like that. Of short ones the first few are, and then those that
 * follow a batch which took longer than the page cache does. */
#define LONG_BYTES (INT64_C(64) << 10)
#define FIRST_LOOKS 2
#define LOOKS 4
#define BATCH 8
#define SLOW_NS 25000
#define CACHED_BYTES_PER_NS 4

/* A short cold stream is announced: the kernel's own reading ahead begins with little, and goes on
 * far behind what is asked for. Of a longer one it reads larger pages at a time than of what is
 * announced, which is twice as fast. */
#define ANNOUNCED_BYTES (INT64_C(4) << 20)
#define ANNOUNCED_AT_ONCE (INT64_C(1) << 20)

#define PAGE_BYTES 4096

typedef struct {
    int fd;
    const sds__access *access;
    const sds_read_plan *plan;
    sds_read_report *report;
    int only_cached; /* 0: not asked for, or found missing */
    int n_looks;     /* short ranges that are still to be looked at */
    int n_batch;     /* short ranges since that were not */
    int64_t batch_bytes;
    int64_t batch_begin_ns;
    sds__place place; /* behind what was read last */
    int64_t end;      /* of it in the file; 0: nothing was */
    uint8_t *buffer;  /* of the sieve, or for the holes */
    int64_t buffer_bytes;
    struct iovec *vectors; /* not on the stack, which may be a small thread's */
} calls;

/* As much as the longest group takes, at once. */
static sds_status reserve(calls *self, int64_t n)
{
    if (n <= self->buffer_bytes) return SDS_OK;
    self->buffer_bytes = n > self->plan->memory_bytes ? n : self->plan->memory_bytes;
    free(self->buffer);
    self->buffer = malloc((size_t)self->buffer_bytes);
    if (self->buffer != NULL) return SDS_OK;
    self->buffer_bytes = 0;
    return SDS_ENOMEM;
}

static void begin_batch(calls *self)
{
    self->n_batch = 0;
    self->batch_bytes = 0;
    self->batch_begin_ns = sds__now_ns();
}

/* Whether a range is to be read only as far as it is cached. */
static int is_looked_at(calls *self, const sds__group *of)
{
    if (!self->only_cached || of->length >= LONG_BYTES) return self->only_cached;
    if (self->n_looks > 0) {
        if (--self->n_looks == 0) begin_batch(self);
        return 1;
    }
    self->batch_bytes += of->length;
    if (++self->n_batch <= BATCH) return 0;
    const int64_t took_ns = sds__now_ns() - self->batch_begin_ns;
    if (took_ns > SLOW_NS + self->batch_bytes / CACHED_BYTES_PER_NS) self->n_looks = LOOKS;
    begin_batch(self);
    return self->n_looks > 0;
}

/* Read a range; while the cache is taken to hold it, only as far as it does. */
static sds_status read_range(calls *self, uint8_t *to, const sds__group *of, int64_t *got)
{
    *got = of->length;
    if (!is_looked_at(self, of)) return sds__read_all(self->fd, to, of->length, of->offset);
    const sds_status status = sds__read_cached(self->fd, to, of->length, of->offset, got);
    if (*got < of->length) self->only_cached = 0;
    return status;
}

static sds_status read_rest(const calls *self, uint8_t *to, const sds__group *of, int64_t got)
{
    return sds__read_all(self->fd, to + got, of->length - got, of->offset + got);
}

/* A single piece that is missing from the cache is left for the next plan from there on. */
static sds_status read_in_place(calls *self, uint8_t *to, const sds__group *of)
{
    int64_t got;
    const sds_status status = read_range(self, to, of, &got);
    if (status != SDS_OK || got == of->length) return status;
    if (of->n_pieces > 1) return read_rest(self, to, of, got);
    self->place = (sds__place){of->first_piece, of->skip_bytes + got};
    return SDS_OK;
}

static sds_status read_sieve(calls *self, const sds__group *of)
{
    int64_t got;
    sds_status status = reserve(self, of->length);
    if (status == SDS_OK) status = read_range(self, self->buffer, of, &got);
    if (status == SDS_OK) status = read_rest(self, self->buffer, of, got);
    if (status == SDS_OK) sds__group_scatter(self->access, of, self->buffer);
    return status;
}

/* The pieces where they go, the holes into the buffer, which is as long as the longest of them.
 * Number of vectors; 0: pieces overlap. */
static int make_vectors(const calls *self, const sds__group *of)
{
    sds__strip_cursor cursor;
    sds__strip strip;
    int64_t end = of->offset;
    int n = 0;
    sds__strip_cursor_init(&cursor, self->access, of);
    while (sds__strip_next(&cursor, &strip))
        for (int64_t i = 0; i < strip.count; i++) {
            const int64_t offset = strip.offset + i * strip.stride;
            if (offset < end) return 0;
            if (offset > end)
                self->vectors[n++] = (struct iovec){self->buffer, (size_t)(offset - end)};
            self->vectors[n++] = (struct iovec){
                self->access->out + strip.position + i * strip.length, (size_t)strip.length};
            end = offset + strip.length;
        }
    return n;
}

static sds_status read_vector(calls *self, const sds__group *of)
{
    const int64_t longest_hole =
        self->plan->max_hole_bytes < of->length ? self->plan->max_hole_bytes : of->length;
    if (self->vectors == NULL)
        self->vectors = malloc(2 * SDS__VECTOR_PIECES * sizeof *self->vectors);
    if (self->vectors == NULL || reserve(self, longest_hole) != SDS_OK) return SDS_ENOMEM;
    const int n_vectors = make_vectors(self, of);
    return n_vectors > 0 ? sds__read_vectors(self->fd, self->vectors, n_vectors, of->offset,
                                             &self->only_cached)
                         : read_sieve(self, of);
}

/* Also where an executor was asked for by name, but not a strategy. */
static int is_cold(const calls *self)
{
    return self->report->cache == SDS_CACHE_COLD && sds__may_stop(self->plan);
}

/* The kernel reads ahead of a reader that leaves out no page. So a hole between two requests of a
 * cold stream is touched, page by page. Whatever goes wrong there does so without consequence. */
static void keep_streaming(const calls *self, const sds__group *next)
{
    const int64_t hole = next->offset - self->end;
    uint8_t byte;
    if (!is_cold(self) || self->plan->executor == SDS_EXECUTOR_PREAD || self->end == 0 ||
        hole > self->plan->max_hole_bytes)
        return;
    const int64_t first = (self->end - 1) / PAGE_BYTES + 1;
    const int saved_errno = errno;
    for (int64_t page = first; page < next->offset / PAGE_BYTES; page++)
        if (pread(self->fd, &byte, 1, (off_t)(page * PAGE_BYTES)) < 1) break;
    errno = saved_errno;
}

static sds_status read_group(calls *self, const sds__group *of)
{
    uint8_t *to = sds__group_target(self->access, of);
    keep_streaming(self, of);
    self->end = of->offset + of->length;
    self->report->requests++;
    self->report->bytes_read += of->length;
    self->place = sds__end_of(of);
    if (to != NULL) return read_in_place(self, to, of);
    const int is_vector = self->plan->executor == SDS_EXECUTOR_VECTOR;
    return is_vector ? read_vector(self, of) : read_sieve(self, of);
}

static sds_status read_groups(calls *self, sds__place *place)
{
    const sds_read_plan *plan = self->plan;
    const int is_watched = self->only_cached;
    int is_resumed = place->piece > 0 || place->bytes > 0;
    sds__group_cursor cursor;
    sds__group group;
    sds__group_cursor_init(&cursor, self->access, plan->max_hole_bytes, plan->group_bytes,
                           sds__group_pieces(plan));
    while (sds__group_next(&cursor, &group)) {
        if (is_resumed && sds__is_before(&group, place)) continue;
        is_resumed = 0;
        const sds_status status = read_group(self, &group);
        if (status != SDS_OK) return status;
        if (!is_watched || self->only_cached) continue;
        *place = self->place;
        const sds__place end = sds__end_of(&group);
        const int is_whole = place->piece == end.piece && place->bytes == end.bytes;
        if (!cursor.done || !is_whole) return SDS_OK;
    }
    *place = (sds__place){sds__access_pieces(self->access), 0};
    return SDS_OK;
}

/* Have the kernel begin to read all that a cold plan goes through, where that is most of a short
 * range. */
static void announce(const calls *self, const sds__place *place)
{
    const sds__group whole = sds__access_whole(self->access);
    if (!is_cold(self) || place->piece > 0 || whole.length > ANNOUNCED_BYTES ||
        self->plan->bytes_read < whole.length / 2)
        return;
    const int64_t end = whole.offset + whole.length;
    for (int64_t at = whole.offset; at < end; at += ANNOUNCED_AT_ONCE)
        /* Only a hint: what is not read ahead is read when it is asked for. */
        (void)posix_fadvise(self->fd, (off_t)at,
                            (off_t)(end - at < ANNOUNCED_AT_ONCE ? end - at : ANNOUNCED_AT_ONCE),
                            POSIX_FADV_WILLNEED);
}

sds_status sds__run_calls(sds_file *file, const sds__access *access, const sds_read_plan *plan,
                          sds__place *place, sds_read_report *report)
{
    calls self = {
        .fd = file->fd,
        .access = access,
        .plan = plan,
        .report = report,
        .only_cached = plan->cache == SDS_CACHE_WARM && sds__may_stop(plan),
        .n_looks = FIRST_LOOKS,
    };
    announce(&self, place);
    const sds_status status = read_groups(&self, place);
    const int saved_errno = errno;
    free(self.buffer);
    free(self.vectors);
    errno = saved_errno;
    return status;
}
