/* Loads small runs from a kept mapping of the file: no call per run.
 *
 * A read goes on in batches, with a look at the clock between them. The first load from a page may
 * take longer than a call: where the page is not cached after all; and where the cache is in small
 * pieces, each of which is entered into the tables by itself. When that has lost an eighth of what
 * calls would take for all, and after a closer look another one, calls are left to do the rest. A
 * read that comes again finds the tables filled as far as the last one came. */
#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "deadline.h"
#include "exec.h"
#include "guard.h"
#include "mapping.h"
#include "sds/io_model.h"

/* Pieces of the first batch, and of the longest. */
#define FIRST_BATCH 16
#define LAST_BATCH 256
#define BATCH_BYTES (INT64_C(1) << 20)

/* A fault enters the pages around it that are cached, too: up to as many as one table entry. */
#define TOUCHED_AROUND (INT64_C(2) << 20)

/* What a clock that is off by a time slice may not decide. */
#define LOSS_FLOOR_NS 20000

typedef struct gathering {
    const sds__access *access;
    const sds__view *view;
    int64_t n_pieces;
    sds__place place;
    int64_t n_batch;
    double call_ns;
    double byte_ns;
    double max_loss_ns;
    double loss_ns;          /* against calls, since the last look */
    double expected_ns;      /* of calls, since then */
    int64_t processor_ns;    /* of this thread, then; 0: not looked yet */
    int64_t n_waited_faults; /* likewise: that had to wait for a device */
    int64_t bytes;
    int64_t touched;
    int64_t most_touched; /* before what is resident is looked at */
    int64_t most_in_batch;
    int is_slow;
} gathering;

/* Part of a long piece, or the rest of one that was begun. */
static void take_part(const gathering *at, sds__group *out)
{
    const int64_t rest = sds__piece_bytes(at->access, out->first_piece) - at->place.bytes;
    out->n_pieces = 1;
    out->skip_bytes = at->place.bytes;
    out->offset += at->place.bytes;
    out->length = out->bytes_useful = rest < BATCH_BYTES ? rest : BATCH_BYTES;
}

/* As many pieces as a batch may have: one at least. */
static void take_pieces(const gathering *at, sds__group *out)
{
    const sds__access *access = at->access;
    const int64_t first = out->first_piece, left = at->n_pieces - first;
    const int64_t most = at->n_batch < left ? at->n_batch : left;
    if (access->runs != NULL) {
        const int64_t n = BATCH_BYTES / access->runs->run_bytes;
        out->n_pieces = n < most ? n : most;
        out->bytes_useful = out->n_pieces * access->runs->run_bytes;
    } else {
        while (out->n_pieces < most) {
            const int64_t length = access->pieces[first + out->n_pieces].length;
            if (length > BATCH_BYTES - out->bytes_useful) break;
            out->bytes_useful += length;
            out->n_pieces++;
        }
    }
    const int64_t last = first + out->n_pieces - 1;
    out->length = sds__piece_offset(access, last) + sds__piece_bytes(access, last) - out->offset;
}

static sds__group next_batch(const gathering *at)
{
    sds__group next = {.first_piece = at->place.piece,
                       .offset = sds__piece_offset(at->access, at->place.piece)};
    if (at->place.bytes > 0 || sds__piece_bytes(at->access, next.first_piece) > BATCH_BYTES)
        take_part(at, &next);
    else
        take_pieces(at, &next);
    return next;
}

/* Behind a batch: the end of a piece is the beginning of the next one. */
static sds__place place_behind(const sds__access *access, const sds__group *batch)
{
    const sds__place end = sds__end_of(batch), next = {end.piece + 1, 0};
    return batch->n_pieces == 1 && end.bytes == sds__piece_bytes(access, end.piece) ? next : end;
}

static int64_t touched_by(const sds__group *batch)
{
    const int64_t each = batch->bytes_useful + batch->n_pieces * TOUCHED_AROUND;
    const int64_t all = batch->length + TOUCHED_AROUND;
    return each < all ? each : all;
}

/* Whether this thread itself was slow since the last look, not others that took its processor. */
static int is_slow_itself(gathering *at)
{
    struct timespec now;
    struct rusage usage;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0 || getrusage(RUSAGE_THREAD, &usage) != 0)
        return 1;
    const int64_t processor_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    const double loss_ns = (double)(processor_ns - at->processor_ns) - at->expected_ns;
    const int is_slow = at->processor_ns > 0 &&
                        (loss_ns > 0.5 * at->max_loss_ns || usage.ru_majflt > at->n_waited_faults);
    at->processor_ns = processor_ns;
    at->n_waited_faults = usage.ru_majflt;
    at->loss_ns = at->expected_ns = 0;
    at->n_batch = FIRST_BATCH; /* so that it is known soon */
    return is_slow;
}

/* Guarded: a fault leaves it anywhere. */
static void gather(void *context)
{
    gathering *at = context;
    int64_t begin_ns = sds__now_ns();
    while (at->place.piece < at->n_pieces && at->touched < at->most_touched) {
        const sds__group batch = next_batch(at);
        sds__group_scatter(at->access, &batch, at->view->bytes + (batch.offset - at->view->offset));
        at->place = place_behind(at->access, &batch);
        at->bytes += batch.bytes_useful;
        at->touched += touched_by(&batch);
        const int64_t end_ns = sds__now_ns();
        const double expected_ns =
            (double)batch.n_pieces * at->call_ns + (double)batch.bytes_useful * at->byte_ns;
        const double loss_ns = (double)(end_ns - begin_ns) - expected_ns;
        at->expected_ns += expected_ns;
        if (loss_ns > 0) at->loss_ns += loss_ns;
        at->is_slow = at->loss_ns > at->max_loss_ns && is_slow_itself(at);
        if (at->is_slow) return;
        begin_ns = end_ns;
        if (at->n_batch < at->most_in_batch) at->n_batch *= 2;
    }
}

/* SDS__LOADED: all, or until it was slow. */
static sds__loads_end gather_all(gathering *at, sds__view *view)
{
    sds__loads_end ended = SDS__LOADED;
    while (ended == SDS__LOADED && !at->is_slow && at->place.piece < at->n_pieces) {
        ended = sds__guard_loads(view->bytes, (size_t)view->length, gather, at);
        sds__view_touched(view, at->touched);
        at->touched = 0;
    }
    return ended;
}

static void prepare_costs(const sds_file *file, const sds__group *whole, gathering *at)
{
    sds_io_parameters builtin;
    const sds_io_parameters *costs = file->parameters;
    if (costs == NULL) {
        sds_io_parameters_builtin(&builtin);
        costs = &builtin;
    }
    at->call_ns = costs->call_s * 1e9;
    at->byte_ns = costs->copy_s_per_byte * 1e9;
    at->max_loss_ns = LOSS_FLOOR_NS + 0.125 * ((double)whole->n_pieces * at->call_ns +
                                               (double)whole->bytes_useful * at->byte_ns);
}

/* Where it may not be loaded from the file, or no longer, the place stays before what is left, and
 * calls do the rest.
 *
 * What was loaded counts only if the file reaches as far as before: of its last page, what lies
 * behind the end can be loaded, as zeros. What a fault cut off is read anew as a whole. */
sds_status sds__run_mapped(sds_file *file, const sds__access *access, const sds_read_plan *plan,
                           sds__place *place, sds_read_report *report)
{
    (void)plan;
    const int saved_errno = errno;
    const sds__group whole = sds__access_whole(access);
    sds__view *view = sds__view_acquire(file, whole.offset, whole.length);
    if (view != NULL) {
        gathering at = {.access = access,
                        .view = view,
                        .n_pieces = whole.n_pieces,
                        .place = *place,
                        .n_batch = FIRST_BATCH,
                        .most_touched = sds__mapped_between_looks(),
                        .most_in_batch = LAST_BATCH};
        struct stat found;
        if (at.most_touched / TOUCHED_AROUND < LAST_BATCH)
            at.most_in_batch = at.most_touched / TOUCHED_AROUND;
        prepare_costs(file, &whole, &at);
        const sds__loads_end ended = gather_all(&at, view);
        if (ended != SDS__FAULTED && fstat(file->fd, &found) == 0 &&
            found.st_size >= whole.offset + whole.length) {
            sds__mapping_ended(file, at.place.piece, at.n_pieces);
            *place = at.place;
            report->bytes_read += at.bytes;
        }
        sds__view_release(view);
    }
    errno = saved_errno;
    return SDS_OK;
}
