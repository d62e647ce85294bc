#include "request_queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arithmetic.h"
#include "cache_probe.h"
#include "file_read.h"
#include "read_cost.h"
#include "ring.h"
#include "threads.h"

/* Requests between two looks at whether the page cache holds what comes next. */
#define WATCH_INTERVAL 128

/* Where io_uring is refused: a device gets busy with as many, and a thread costs 20 us. */
#define MAX_THREADS 32
#define REQUESTS_PER_THREAD 4

/* A kernel that gives requests back undone so often is asked no more. */
#define MAX_REFUSED 4

/* One in flight. A group is read with what its first and last block hold besides. */
typedef struct {
    sds__group group;
    uint8_t *to;    /* what is read: in place, or in a buffer */
    int64_t offset; /* of what is read */
    int64_t length;
    int64_t needed; /* of it: the rest may lie behind the end of the file */
    int64_t done;
    int is_in_flight;
    int is_in_place;
    int is_finished;
    int was_refused;
} request;

typedef struct {
    sds_file *file;
    const sds__access *access;
    const sds_read_plan *plan;
    const sds__queue_options *options;
    sds_read_report *report;
    sds__group_cursor cursor;
    sds__place begin;
    sds__place stopped_at;
    int is_stopped; /* nothing more is begun */
    int64_t n_begun;
    sds_status status; /* of the first failure */
    int error;
    int n_refused;
    int32_t depth;
    int64_t n_groups;
    request *requests;
    uint8_t *buffers;
    size_t buffers_bytes;
    int64_t buffer_bytes; /* of one */
    pthread_mutex_t lock; /* of what is above, where threads share it */
} queue;

static int64_t align_down(int64_t n, int64_t alignment)
{
    return n - n % alignment;
}

static int64_t align_up(int64_t n, int64_t alignment)
{
    return align_down(n + alignment - 1, alignment);
}

static int next_group(queue *self, sds__group *out)
{
    do
        if (self->is_stopped || !sds__group_next(&self->cursor, out)) return 0;
    while (sds__is_before(out, &self->begin));
    self->n_begun++;
    if (self->options->is_watched && self->n_begun % WATCH_INTERVAL == 0 &&
        self->n_groups - self->n_begun >= WATCH_INTERVAL) {
        /* All that is left: what comes next may only have been read ahead. */
        const sds__place left = sds__start_of(out);
        if (sds__probe_access(self->file, self->access, &left) == SDS_CACHE_WARM) {
            self->is_stopped = 1;
            self->stopped_at = left;
            return 0;
        }
    }
    self->report->requests++;
    self->report->bytes_read += out->length;
    return 1;
}

/* Make the request in a slot that of the next group: 1, or 0 where there is none. */
static int begin_next(queue *self, int32_t slot)
{
    request *next = &self->requests[slot];
    if (!next_group(self, &next->group)) return 0;
    const sds__group *group = &next->group;
    const int64_t alignment = self->options->alignment;
    uint8_t *place = alignment == 1 ? sds__group_target(self->access, group) : NULL;
    next->is_in_place = place != NULL;
    next->to = place != NULL ? place : self->buffers + slot * self->buffer_bytes;
    next->offset = align_down(group->offset, alignment);
    next->needed = group->offset + group->length - next->offset;
    next->length = align_up(next->needed, alignment);
    next->done = 0;
    next->is_finished = next->was_refused = 0;
    return 1;
}

/* Put what was read where it belongs. */
static void deliver(const queue *self, const request *of)
{
    if (of->is_in_place) return;
    const uint8_t *bytes = of->to + (of->group.offset - of->offset);
    uint8_t *to = sds__group_target(self->access, &of->group);
    if (to != NULL)
        memcpy(to, bytes, (size_t)of->group.length);
    else
        sds__group_scatter(self->access, &of->group, bytes);
}

/* Read what is left of a request by calls, through the page cache. */
static sds_status read_plainly(const queue *self, request *of)
{
    const int64_t left = of->needed - of->done;
    const sds_status status =
        sds__read_all(self->file->fd, of->to + of->done, left, of->offset + of->done);
    if (status != SDS_OK) return status;
    of->is_finished = 1;
    deliver(self, of);
    return SDS_OK;
}

/* Bytes or a negative error number came of a request. Unless it is finished then, it goes on. */
static sds_status take_back(const queue *self, request *of, int64_t result)
{
    if (result == -EIO) {
        errno = EIO;
        return SDS_EIO;
    }
    if (result < 0) {
        /* Not the device's doing: files opened with O_NONBLOCK are given back by old kernels
         * (EAGAIN), file systems may not take part, a ring may be on its way out. */
        of->was_refused = 1;
        return read_plainly(self, of);
    }
    of->done += result;
    if (of->done >= of->needed) {
        of->is_finished = 1;
        deliver(self, of);
        return SDS_OK;
    }
    /* Nothing, or past the page cache less than a block: the end of the file. */
    return result == 0 || of->done % self->options->alignment != 0 ? SDS_ESHORT : SDS_OK;
}

static void note(queue *self, const request *of, sds_status status)
{
    if (of->was_refused) self->n_refused++;
    if (status == SDS_OK) return;
    self->is_stopped = 1;
    if (self->status != SDS_OK) return;
    self->status = status;
    self->error = errno;
}

static int64_t bytes_to_ask_for(const request *of)
{
    return sds__least(of->length - of->done, SDS__MAX_CALL_BYTES);
}

static void submit(queue *self, sds__ring *ring, int32_t slot)
{
    request *of = &self->requests[slot];
    of->is_in_flight = 1;
    sds__ring_read(ring, self->options->fd, of->to + of->done, (uint32_t)bytes_to_ask_for(of),
                   of->offset + of->done, (uint64_t)slot);
}

/* Take back what is done. goes_on: what is not finished is asked for again; else it is left marked
 * as in flight. */
static void reap(queue *self, sds__ring *ring, int goes_on, int32_t slots[], int32_t *n_free)
{
    uint64_t slot;
    int32_t result;
    while (sds__ring_take(ring, &slot, &result)) {
        request *of = &self->requests[slot];
        const sds_status status = take_back(self, of, result);
        note(self, of, status);
        if (of->is_finished || self->status != SDS_OK) {
            of->is_in_flight = 0;
            slots[(*n_free)++] = (int32_t)slot;
        } else if (goes_on) {
            submit(self, ring, (int32_t)slot);
        }
    }
}

/* The kernel takes no more: wait for what it has, and read by calls what it never took. */
static void wind_up(queue *self, sds__ring *ring, int32_t slots[], int32_t *n_free)
{
    while (ring->n_in_flight > 0) {
        sds__ring_wait(ring);
        reap(self, ring, 0, slots, n_free);
    }
    for (int32_t i = 0; i < self->depth && self->status == SDS_OK; i++)
        if (self->requests[i].is_in_flight)
            note(self, &self->requests[i], read_plainly(self, &self->requests[i]));
}

/* True where nothing is left to read, or reading has failed. Nothing is in flight then, nor
 * otherwise. */
static int run_ring(queue *self, sds__ring *ring, int32_t slots[])
{
    /* The device stays busy while a few of many are taken back together. */
    const uint32_t n_together = 1 + (uint32_t)self->depth / 16;
    int32_t n_free = 0;
    for (int32_t slot = self->depth; slot > 0; slot--)
        slots[n_free++] = slot - 1;
    for (int is_any = 1;;) {
        for (int32_t n = 0; is_any && n < self->options->batch && n_free > 0; n++) {
            is_any = self->n_refused < MAX_REFUSED && begin_next(self, slots[n_free - 1]);
            if (is_any) submit(self, ring, slots[--n_free]);
        }
        if (n_free == self->depth) return self->n_refused < MAX_REFUSED;
        const int waits = !is_any || n_free == 0;
        if (!sds__ring_submit(ring, waits ? n_together : 0)) {
            wind_up(self, ring, slots, &n_free);
            return self->status != SDS_OK;
        }
        reap(self, ring, 1, slots, &n_free);
    }
}

/* Requests one after the other: of a thread. */
static void run_calls(queue *self, int32_t slot)
{
    request *of = &self->requests[slot];
    for (;;) {
        (void)pthread_mutex_lock(&self->lock);
        const int is_any = begin_next(self, slot);
        (void)pthread_mutex_unlock(&self->lock);
        if (!is_any) return;
        sds_status status = SDS_OK;
        while (status == SDS_OK && !of->is_finished) {
            const ssize_t got = pread(self->options->fd, of->to + of->done,
                                      (size_t)bytes_to_ask_for(of), (off_t)(of->offset + of->done));
            if (got < 0 && errno == EINTR) continue;
            status = take_back(self, of, got < 0 ? -errno : got);
        }
        (void)pthread_mutex_lock(&self->lock);
        note(self, of, status);
        (void)pthread_mutex_unlock(&self->lock);
    }
}

typedef struct {
    queue *of;
    int32_t slot;
} worker;

static void *work(void *self)
{
    run_calls(((worker *)self)->of, ((worker *)self)->slot);
    return NULL;
}

static void run_threads(queue *self)
{
    worker workers[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    const int64_t useful = self->n_groups / REQUESTS_PER_THREAD;
    const int32_t n =
        (int32_t)sds__least(sds__least(self->depth, MAX_THREADS), useful < 1 ? 1 : useful);
    for (int32_t i = 1; i < n; i++)
        workers[i] = (worker){self, i};
    const int32_t n_started =
        sds__start_threads(n - 1, work, workers + 1, sizeof *workers, threads);
    self->report->queue = n_started > 0 ? SDS_QUEUE_THREADS : SDS_QUEUE_NONE;
    run_calls(self, 0);
    for (int32_t i = 0; i < n_started; i++)
        (void)pthread_join(threads[i], NULL);
}

/* Choose how much is in flight, and allocate what it needs. */
static sds_status allocate(queue *self)
{
    const sds__queue_options *options = self->options;
    const int64_t alignment = options->alignment;
    sds__group_totals totals;
    sds__group_totals_of(self->access, self->plan->max_hole_bytes, options->group_bytes, INT64_MAX,
                         &totals);
    self->n_groups = totals.groups;
    self->depth = (int32_t)sds__least(options->depth, totals.groups);
    if (alignment > 1)
        self->buffer_bytes = align_up(totals.longest_bytes + 2 * (alignment - 1), alignment);
    else if (self->access->runs == NULL || totals.bytes_read > totals.bytes_useful)
        self->buffer_bytes = align_up(totals.longest_merged_bytes, 64);
    const int64_t most = options->max_memory_bytes;
    if (self->buffer_bytes > 0 && self->depth > most / self->buffer_bytes)
        self->depth = (int32_t)(most > self->buffer_bytes ? most / self->buffer_bytes : 1);
    self->requests = calloc((size_t)self->depth, sizeof *self->requests);
    if (self->requests == NULL) return SDS_ENOMEM;
    if (self->buffer_bytes == 0) return SDS_OK;
    const int64_t buffers_bytes = self->depth * self->buffer_bytes;
    self->buffers_bytes = (size_t)(alignment > 1 ? sds__huge_bytes(buffers_bytes) : buffers_bytes);
    void *made =
        mmap(NULL, self->buffers_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return SDS_ENOMEM;
    self->buffers = made;
    /* What is in flight at a fork is written where it was asked for, not into a copy. */
    (void)madvise(made, self->buffers_bytes, MADV_DONTFORK);
    (void)madvise(made, self->buffers_bytes, MADV_HUGEPAGE);
    return SDS_OK;
}

static void run(queue *self)
{
    sds__ring ring;
    int32_t *slots = malloc((size_t)self->depth * sizeof *slots);
    int is_over = 0, state;
    /* Who cancels the calling thread finds nothing in flight. */
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (slots != NULL && sds__ring_open(&ring, (uint32_t)self->depth)) {
        self->report->queue = SDS_QUEUE_RING;
        is_over = run_ring(self, &ring, slots);
        sds__ring_close(&ring);
    }
    free(slots);
    if (!is_over) run_threads(self);
    (void)pthread_setcancelstate(state, NULL);
}

sds_status sds__read_queue(sds_file *file, const sds__access *access, const sds_read_plan *plan,
                           const sds__queue_options *options, sds__place *place,
                           sds_read_report *report)
{
    const int saved_errno = errno;
    queue self = {
        .file = file,
        .access = access,
        .plan = plan,
        .options = options,
        .report = report,
        .begin = *place,
        .stopped_at = {sds__access_pieces(access), 0},
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    sds__group_cursor_init(&self.cursor, access, plan->max_hole_bytes, options->group_bytes,
                           INT64_MAX);
    self.status = allocate(&self);
    self.error = errno;
    if (self.status == SDS_OK) run(&self);
    if (self.status == SDS_OK) *place = self.stopped_at;
    if (self.buffers != NULL) (void)munmap(self.buffers, self.buffers_bytes);
    free(self.requests);
    (void)pthread_mutex_destroy(&self.lock);
    errno = self.status == SDS_EIO ? self.error : saved_errno;
    return self.status;
}
