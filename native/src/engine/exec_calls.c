/* Reads a request after the other, by pread, through a small sieve, or by preadv.
 *
 * Where the plan takes the cache for warm, calls ask for what the cache holds (RWF_NOWAIT): the
 * first that finds something missing ends the plan.
 *
 * Many calls far apart wait for memory: the tables of the page cache, its pages, what they hold.
 * Where a processor is idle, a second thread makes half of them. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "deadline.h"
#include "exec.h"
#include "file_read.h"
#include "read_ahead.h"
#include "threads.h"

/* To ask for what is cached takes 60 ns more than to read: a sixth of the shortest call. So only
 * long ranges are always read like that. Of short ones the first few are, and then those that
 * follow a batch which took longer than the page cache does. */
#define LONG_BYTES (INT64_C(64) << 10)
#define FIRST_LOOKS 2
#define LOOKS 4
#define BATCH 8
#define SLOW_NS 25000
#define CACHED_BYTES_PER_NS 4

#define PAGE_BYTES 4096

/* A second thread takes 40 to 60 us to start and to end, and takes this number of requests at a
 * time: it is worth it from calls that take four times as long. */
#define LEAST_SHARED_S 240e-6
#define LEAST_SHARED_REQUESTS 64
#define SHARED_AT_ONCE 16
/* Each has a buffer for the few that are near each other. */
#define MOST_SHARED_BUFFER_BYTES (INT64_C(32) << 10)

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
    if (*got == of->length || status != SDS_OK) return status;
    self->only_cached = 0;
    return self->plan->only_cached ? SDS_ENOENT : SDS_OK;
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
                                             !self->plan->only_cached, &self->only_cached)
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

/* Short pieces of a list that are not looked at, as many as a batch has; how many. */
static int64_t read_batch(calls *self, int64_t first, sds_status *status)
{
    const sds__access *access = self->access;
    const int64_t left = (int64_t)access->n - first, most = left < BATCH ? left : BATCH;
    int64_t n = 0, bytes = 0;
    const int64_t begin_ns = sds__now_ns();
    while (n < most && *status == SDS_OK && access->pieces[first + n].length < LONG_BYTES) {
        const sds_piece *piece = &access->pieces[first + n++];
        bytes += piece->length;
        *status =
            sds__read_all(self->fd, access->out + piece->position, piece->length, piece->offset);
    }
    if (sds__now_ns() - begin_ns > SLOW_NS + bytes / CACHED_BYTES_PER_NS) self->n_looks = LOOKS;
    self->report->requests += n;
    self->report->bytes_read += bytes;
    return n;
}

/* Each piece of a list by itself: short lists are read in the time that walking groups takes. */
static sds_status read_pieces(calls *self, sds__place *place)
{
    const sds__access *access = self->access;
    const int is_watched = self->only_cached;
    sds_status status = SDS_OK;
    int64_t skip = place->bytes;
    for (int64_t i = place->piece; i < (int64_t)access->n; skip = 0) {
        const sds_piece *piece = &access->pieces[i];
        if (skip == 0 && (!is_watched || self->n_looks == 0) && piece->length < LONG_BYTES) {
            i += read_batch(self, i, &status);
            if (status != SDS_OK) return status;
            continue;
        }
        const int64_t left = piece->length - skip;
        const sds__group of = {.offset = piece->offset + skip,
                               .length = left,
                               .bytes_useful = left,
                               .first_piece = i++,
                               .skip_bytes = skip,
                               .n_pieces = 1};
        self->report->requests++;
        self->report->bytes_read += left;
        status = read_in_place(self, access->out + piece->position + skip, &of);
        if (status != SDS_OK) return status;
        if (!is_watched || self->only_cached) continue;
        *place = self->place;
        return SDS_OK;
    }
    *place = (sds__place){(int64_t)access->n, 0};
    return SDS_OK;
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

/* The kernel's own reading ahead begins with little, and goes on far behind what is asked for. So a
 * short range of which a cold plan reads most is announced, and the memory that it goes to is made
 * while the device works. */
static void announce(const calls *self, const sds__place *place)
{
    const sds__access *access = self->access;
    const sds__group whole = sds__access_whole(access);
    const int64_t n = whole.length - place->bytes;
    if (!is_cold(self) || place->piece > 0 || n > SDS_ANNOUNCED_BYTES ||
        self->plan->bytes_read < whole.length / 2)
        return;
    sds__announce(self->fd, whole.offset + place->bytes, n);
    uint8_t *to = access->runs != NULL ? access->out : sds__group_target(access, &whole);
    if (to != NULL) sds__make_pages(to + place->bytes, whole.bytes_useful - place->bytes);
}

static calls begin(const sds_file *file, const sds__access *access, const sds_read_plan *plan,
                   sds_read_report *report)
{
    return (calls){
        .fd = file->fd,
        .access = access,
        .plan = plan,
        .report = report,
        .only_cached = plan->cache == SDS_CACHE_WARM && sds__may_stop(plan),
        .n_looks = FIRST_LOOKS,
    };
}

static void end(calls *self)
{
    const int saved_errno = errno;
    free(self->buffer);
    free(self->vectors);
    errno = saved_errno;
}

/* ---- by two threads */

/* What both take their requests from. */
typedef struct {
    pthread_mutex_t lock; /* of what follows */
    sds__group_cursor cursor;
    sds__place begin;
    int is_stopped;
    sds__place left; /* where it is: all before it has been read */
    sds_status status;
    int error;
} sharing;

typedef struct {
    calls by;
    sharing *of;
    sds_read_report report;
} share;

static int take_groups(sharing *of, sds__group groups[])
{
    int n = 0;
    (void)pthread_mutex_lock(&of->lock);
    while (n < SHARED_AT_ONCE && !of->is_stopped && sds__group_next(&of->cursor, &groups[n]))
        n += !sds__is_before(&groups[n], &of->begin);
    (void)pthread_mutex_unlock(&of->lock);
    return n;
}

static int is_behind(const sds__place *place, const sds__place *other)
{
    return place->piece > other->piece ||
           (place->piece == other->piece && place->bytes > other->bytes);
}

/* Have neither begin anything more. What the other one has read behind the place is read again. */
static void stop_at(sharing *of, const sds__place *place, sds_status status)
{
    const int error = errno;
    (void)pthread_mutex_lock(&of->lock);
    if (!of->is_stopped || is_behind(&of->left, place)) of->left = *place;
    of->is_stopped = 1;
    if (of->status == SDS_OK) {
        of->status = status;
        of->error = error;
    }
    (void)pthread_mutex_unlock(&of->lock);
}

static void *read_share(void *argument)
{
    share *own = argument;
    calls *self = &own->by;
    const int is_watched = self->only_cached;
    sds__group groups[SHARED_AT_ONCE];
    sds_status status = SDS_OK;
    for (int n; status == SDS_OK && (n = take_groups(own->of, groups)) > 0;)
        for (int i = 0; i < n; i++) {
            status = read_group(self, &groups[i]);
            if (status == SDS_OK && self->only_cached == is_watched) continue;
            stop_at(own->of, &self->place, status);
            break;
        }
    end(self);
    return NULL;
}

sds_status sds__run_calls_shared(sds_file *file, const sds__access *access,
                                 const sds_read_plan *plan, sds__place *place,
                                 sds_read_report *report)
{
    const int saved_errno = errno;
    sharing shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .begin = *place};
    share shares[2];
    pthread_t helper;
    int state;
    sds__group_cursor_init(&shared.cursor, access, plan->max_hole_bytes, plan->group_bytes,
                           sds__group_pieces(plan));
    for (int i = 0; i < 2; i++) {
        shares[i].of = &shared;
        shares[i].report = (sds_read_report){.cache = report->cache};
        shares[i].by = begin(file, access, plan, &shares[i].report);
    }
    /* Who cancels the calling thread leaves none behind. */
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    const int is_helped = sds__start_threads(1, read_share, &shares[1], 0, &helper) == 1;
    (void)read_share(&shares[0]);
    if (is_helped) (void)pthread_join(helper, NULL);
    (void)pthread_setcancelstate(state, NULL);
    (void)pthread_mutex_destroy(&shared.lock);
    report->queue = is_helped ? SDS_QUEUE_THREADS : SDS_QUEUE_NONE;
    if (is_helped) report->plan.memory_bytes = 2 * plan->memory_bytes;
    for (int i = 0; i < 2; i++) {
        report->requests += shares[i].report.requests;
        report->bytes_read += shares[i].report.bytes_read;
    }
    *place = shared.is_stopped ? shared.left : (sds__place){sds__access_pieces(access), 0};
    errno = shared.status == SDS_EIO ? shared.error : saved_errno;
    return shared.status;
}

int sds__may_share_calls(const sds_read_plan *plan, const sds__place *place)
{
    const int64_t buffer_bytes =
        plan->max_memory_bytes > 0 ? plan->max_memory_bytes / 2 : MOST_SHARED_BUFFER_BYTES;
    return plan->executor != SDS_EXECUTOR_VECTOR && plan->cache == SDS_CACHE_WARM &&
           sds__may_stop(plan) && place->piece == 0 && plan->requests >= LEAST_SHARED_REQUESTS &&
           plan->predicted_s >= LEAST_SHARED_S && plan->memory_bytes <= buffer_bytes &&
           plan->memory_bytes <= MOST_SHARED_BUFFER_BYTES;
}

sds_status sds__run_calls(sds_file *file, const sds__access *access, const sds_read_plan *plan,
                          sds__place *place, sds_read_report *report)
{
    if (sds__may_share_calls(plan, place) && sds__idle_processors() > 0)
        return sds__run_calls_shared(file, access, plan, place, report);
    calls self = begin(file, access, plan, report);
    announce(&self, place);
    const int is_by_piece = access->runs == NULL && plan->executor == SDS_EXECUTOR_PREAD &&
                            plan->max_hole_bytes == SDS__JOIN_NOTHING;
    const sds_status status = is_by_piece ? read_pieces(&self, place) : read_groups(&self, place);
    end(&self);
    return status;
}
