#include "trace_writer.h"

#define ASIDE_NS 2000000 /* boxes are put aside for about so long */
#define STALE_SHARE 16   /* of an interval: a walk not gone on with for so long may end */

static uint32_t thread_ordinal(sds_trace_writer *writer, uintptr_t thread)
{
    for (uint32_t i = 0; i < writer->n_threads; i++)
        if (writer->thread[i] == thread) return i;
    if (writer->n_threads == SDS__N_THREADS) return SDS__N_THREADS - 1;
    writer->thread[writer->n_threads] = thread;
    return writer->n_threads++;
}

/* 0 where the read's dataset has to be added again, in the child of a fork. */
static int is_added(const sds_trace_writer *writer, uint32_t dataset)
{
    return dataset > writer->n_inherited || dataset == 0;
}

/* False where the read was dropped. */
static int may_record(sds_trace_writer *writer, uint32_t dataset)
{
    if (dataset > atomic_load(&writer->n_datasets)) return 0;
    if (!writer->full && dataset != 0) return 1;
    sds__trace_drop_read(writer);
    return 0;
}

/* The reads' own times serve as the clock; it may be set back. */
static inline int is_due(const sds_trace_writer *writer, int64_t start_ns)
{
    const int64_t since_ns = sds__wrap_sub(start_ns, writer->flushed_ns);
    return since_ns >= writer->interval_ns || since_ns < 0;
}

static void flush_when_due(sds_trace_writer *writer, int64_t start_ns)
{
    if (!is_due(writer, start_ns)) return;
    if (writer->flushed_ns != 0) {
        sds__trace_write(writer);
        sds__trace_set_interval(writer, writer->interval_ns + writer->interval_ns / 4);
    }
    writer->flushed_ns = start_ns;
}

/* Add a read to the stream of its shape. */
static sds__stream *add_to_stream(sds_trace_writer *writer, sds__stream *of,
                                  const sds__added_read *read)
{
    sds__streams_add(&writer->streams, of, read, sds__trace_emit, writer);
    flush_when_due(writer, read->start_ns);
    return of;
}

/* Return the stream that the read went to; NULL where there is none. */
static sds__stream *add_read(sds_trace_writer *writer, const sds__added_read *read)
{
    sds__stream *of = sds__streams_find(&writer->streams, read);
    if (of == NULL) of = sds__streams_take(&writer->streams, read);
    if (of != NULL) return add_to_stream(writer, of, read);
    writer->n_dropped++;
    return NULL;
}

/* Whether two boxes differ in place and time alone. */
static int is_like(const sds__box *box, const sds__box *other)
{
    if (box->dataset != other->dataset || box->rank != other->rank || box->kind != other->kind ||
        box->thread != other->thread || box->served_by != other->served_by ||
        box->collective != other->collective)
        return 0;
    for (int32_t axis = 0; axis < box->rank; axis++)
        if (box->count[axis] != other->count[axis]) return 0;
    return 1;
}

/* Count a box like the one before it, which went to this stream, where no more is to be done:
 * nearly every one. 0 where it is not so simple. */
static int step(sds_trace_writer *writer, sds__stream *of, const sds__box *box)
{
    const sds__fold_read read = {box->start, sds__trace_date(writer, box->span.begin_ns),
                                 box->span.end_ns - box->span.begin_ns};
    return !is_due(writer, read.start_ns) && sds__fold_step(&of->fold, &read);
}

static void take_slab(const sds__box *box, sds_hyperslab *slab, sds__added_read *read)
{
    slab->rank = box->rank;
    read->n_elements = 1;
    for (int32_t axis = 0; axis < box->rank; axis++) {
        slab->start[axis] = box->start[axis];
        slab->stride[axis] = slab->block[axis] = 1;
        slab->count[axis] = box->count[axis];
        read->n_elements *= slab->count[axis];
    }
    read->slab = slab;
}

/* A walk's next read is none of its steps: it goes on as a stream that has what it had, or, where
 * all streams are of more use to others, is written and begins anew. Return that stream; or NULL,
 * and whether it has begun. */
static sds__stream *leave_walk(sds_trace_writer *writer, sds__walk *walk,
                               const sds__added_read *read, const sds__walk_read *next,
                               int *has_begun)
{
    sds_trace_record record;
    sds__stream *of =
        sds__streams_may_take(&writer->streams, sds__walk_last_ns(&writer->walks, walk))
            ? sds__streams_take(&writer->streams, read)
            : NULL;
    sds__walk_tell(&writer->walks, walk, &record);
    if (of == NULL) {
        sds__trace_emit(writer, &record);
        *has_begun = sds__walk_begin(&writer->walks, walk, next);
        return NULL;
    }
    walk->key = 0;
    sds__fold_resume(&of->fold, &record, sds__trace_emit, writer);
    return of;
}

static void emit_walk(sds_trace_writer *writer, const sds__walk *walk)
{
    sds_trace_record record;
    sds__walk_tell(&writer->walks, walk, &record);
    sds__trace_emit(writer, &record);
}

/* Begin a walk, or write its read alone. 0 where neither can be. */
static int begin_walk(sds_trace_writer *writer, const sds__walk_read *read)
{
    const int64_t stale_ns = sds__wrap_sub(read->start_ns, writer->interval_ns / STALE_SHARE);
    sds__walk *walk = sds__walks_make_room(&writer->walks, read, stale_ns);
    if (walk != NULL && walk->key != 0) emit_walk(writer, walk);
    if (walk != NULL) return sds__walk_begin(&writer->walks, walk, read);
    sds__walk alone;
    if (writer->walks.place == NULL || !sds__walk_begin(&writer->walks, &alone, read)) return 0;
    emit_walk(writer, &alone);
    return 1;
}

/* The same for a box that no walk steps to. walk: that of its shape, or NULL; walked: NULL where it
 * cannot have one. */
__attribute__((noinline)) static sds__stream *fold_box(sds_trace_writer *writer,
                                                       const sds__box *box, sds__added_read *read,
                                                       sds__walk *walk,
                                                       const sds__walk_read *walked)
{
    sds__stream *of;
    int is_walked = 0;
    take_slab(box, &writer->slab, read);
    if (walk != NULL) {
        of = leave_walk(writer, walk, read, walked, &is_walked);
    } else {
        of = sds__streams_find(&writer->streams, read);
        if (of == NULL && walked != NULL) is_walked = begin_walk(writer, walked);
    }
    if (of != NULL) return add_to_stream(writer, of, read);
    if (!is_walked) return add_read(writer, read);
    flush_when_due(writer, read->start_ns);
    return NULL;
}

/* Return the stream that the box went to; NULL where it is a walk, or was dropped. */
static sds__stream *add_box(sds_trace_writer *writer, const sds__box *box, int64_t start_ns,
                            int64_t elapsed_ns)
{
    if (!may_record(writer, box->dataset)) return NULL;
    sds__walk_read walked = {.start_ns = start_ns, .elapsed_ns = elapsed_ns};
    sds__added_read read = {.dataset = box->dataset,
                            .thread = thread_ordinal(writer, box->thread),
                            .kind = box->kind,
                            .collective = box->collective,
                            .served_by = box->served_by,
                            .start_ns = start_ns,
                            .elapsed_ns = elapsed_ns};
    if (!sds__walk_take_box(box, read.thread, &walked))
        return fold_box(writer, box, &read, NULL, NULL);
    sds__walk *walk = sds__walks_find(&writer->walks, &walked);
    if (walk == NULL || !sds__walk_step(&writer->walks, walk, &walked))
        return fold_box(writer, box, &read, walk, &walked);
    flush_when_due(writer, start_ns);
    return NULL;
}

__attribute__((hot)) void sds__trace_fold_boxes(sds_trace_writer *writer)
{
    sds__stream *of = NULL;
    for (int32_t i = 0; i < writer->n_aside; i++)
        sds__walks_expect(&writer->walks, writer->aside[i].dataset);
    for (int32_t i = 0; i < writer->n_aside; i++) {
        const sds__box *box = &writer->aside[i];
        if (of != NULL && is_like(box, box - 1) && step(writer, of, box)) continue;
        of = add_box(writer, box, sds__trace_date(writer, box->span.begin_ns),
                     box->span.end_ns - box->span.begin_ns);
    }
    writer->n_aside = 0;
}

/* False where it is none: of more axes, or with gaps. */
static int take_box(const sds__added_read *read, uintptr_t thread, sds__box *box)
{
    const sds_hyperslab *slab = read->slab;
    int64_t n_elements = 1;
    if ((read->kind != SDS_SELECT_ALL && read->kind != SDS_SELECT_HYPERSLAB) ||
        slab->rank > SDS_TRACE_BOX_RANK)
        return 0;
    box->dataset = read->dataset;
    box->rank = (int8_t)slab->rank;
    box->kind = (int8_t)read->kind;
    box->collective = (int8_t)read->collective;
    box->served_by = read->served_by;
    box->thread = thread;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        int64_t last;
        if (slab->stride[axis] != 1 || slab->block[axis] != 1 || slab->count[axis] < 0 ||
            __builtin_add_overflow(slab->start[axis], slab->count[axis] - 1, &last) ||
            __builtin_mul_overflow(n_elements, slab->count[axis], &n_elements))
            return 0;
        box->start[axis] = slab->start[axis];
        box->count[axis] = slab->count[axis];
    }
    return n_elements == read->n_elements;
}

static int is_rank(int32_t rank)
{
    return rank >= 0 && rank <= SDS_MAX_RANK;
}

static void add_at_once(sds_trace_writer *writer, sds__added_read *read)
{
    const uintptr_t self = sds_this_thread();
    sds__box box;
    if (take_box(read, self, &box)) {
        add_box(writer, &box, read->start_ns, read->elapsed_ns);
    } else if (may_record(writer, read->dataset)) {
        read->thread = thread_ordinal(writer, self);
        add_read(writer, read);
    }
}

/* span: by which the read was timed; NULL where its times are known. */
static int add_whole(sds_trace_writer *writer, sds__added_read *read, const sds_trace_span *span)
{
    if (!sds__trace_lock(writer)) return 1;
    const int added = is_added(writer, read->dataset);
    if (added) {
        sds__trace_fold_boxes(writer);
        if (span != NULL) {
            read->start_ns = sds__trace_date(writer, span->begin_ns);
            read->elapsed_ns = span->end_ns - span->begin_ns;
        }
        add_at_once(writer, read);
    }
    sds__trace_unlock(writer);
    return added;
}

int sds_trace_add_read(sds_trace_writer *writer, const sds_trace_read *read)
{
    if (writer == NULL || !is_rank(read->slab.rank)) return 1;
    sds__added_read added = {.dataset = read->dataset,
                             .kind = read->kind,
                             .collective = read->collective != 0,
                             .n_elements = read->n_elements,
                             .served_by = read->served_by,
                             .slab = &read->slab,
                             .start_ns = read->start_ns,
                             .elapsed_ns = read->elapsed_ns};
    return add_whole(writer, &added, NULL);
}

int sds_trace_add_timed_read(sds_trace_writer *writer, const sds_trace_timed_read *read)
{
    if (writer == NULL || !is_rank(read->slab->rank)) return 1;
    sds__added_read added = {.dataset = read->dataset,
                             .kind = read->kind,
                             .collective = read->collective != 0,
                             .n_elements = read->n_elements,
                             .served_by = read->served_by,
                             .slab = read->slab};
    return add_whole(writer, &added, &read->span);
}

/* Where reads are slow, each is folded at once: what waits may be lost. */
static int is_enough(const sds_trace_writer *writer, const sds__box *latest)
{
    return writer->n_aside == SDS__N_ASIDE ||
           latest->span.end_ns - writer->aside[0].span.begin_ns > ASIDE_NS;
}

/* Field by field: what axes there are not need not be copied. */
static inline void copy_box(const sds_trace_box *box, uintptr_t thread, sds__box *out)
{
    out->dataset = box->dataset;
    out->rank = box->rank;
    out->kind = box->kind;
    out->collective = box->collective;
    out->span = box->span;
    out->served_by = box->served_by;
    out->thread = thread;
    for (int32_t axis = 0; axis < box->rank; axis++) {
        out->start[axis] = box->first[axis];
        out->count[axis] = box->last[axis] - box->first[axis] + 1;
    }
}

__attribute__((hot)) int sds_trace_add_box(sds_trace_writer *writer, const sds_trace_box *box)
{
    if (writer == NULL || (uint8_t)box->rank > SDS_TRACE_BOX_RANK || !sds__trace_lock(writer))
        return 1;
    if (__builtin_expect(!is_added(writer, box->dataset), 0)) {
        sds__trace_unlock(writer);
        return 0;
    }
    sds__box *aside = &writer->aside[writer->n_aside++];
    copy_box(box, sds_owner_lock_owner(&writer->lock), aside);
    if (is_enough(writer, aside)) sds__trace_fold_boxes(writer);
    sds__trace_unlock(writer);
    return 1;
}
