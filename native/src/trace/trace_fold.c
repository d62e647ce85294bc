#include "trace_fold.h"

#include <string.h>

#include "bytes.h"
#include "trace_layout.h"

static void times_begin(sds__fold_times *times)
{
    memset(times, 0, sizeof *times);
    times->min_ns = INT64_MAX;
}

static void times_add(sds__fold_times *times, const sds__fold_times *later, int is_first)
{
    if (is_first) {
        *times = *later;
        return;
    }
    times->last_start_ns = later->last_start_ns;
    times->sum_ns = sds__saturating_add(times->sum_ns, later->sum_ns);
    if (later->min_ns < times->min_ns) times->min_ns = later->min_ns;
    if (later->max_ns > times->max_ns) times->max_ns = later->max_ns;
    for (int bucket = 0; bucket < SDS_TRACE_LATENCY_BUCKETS; bucket++)
        times->latency[bucket] += later->latency[bucket];
}

static size_t start_bytes(const sds__fold *fold)
{
    return (size_t)fold->shape.rank * sizeof(int64_t);
}

/* Count a read in the innermost level. */
static void count_read(sds__fold *fold, const sds__fold_read *read)
{
    sds__fold_level *inner = &fold->level[0];
    sds__times_add_read(&inner->times, read, inner->done == 0);
    inner->done++;
    fold->n_reads++;
    memcpy(fold->last, read->start, start_bytes(fold));
}

/* Levels 0 to last begin a new instance at start. */
static void begin_instances(sds__fold *fold, int32_t last, const int64_t start[])
{
    for (int32_t l = 0; l <= last; l++) {
        memcpy(fold->level[l].origin, start, start_bytes(fold));
        fold->level[l].done = 0;
        times_begin(&fold->level[l].times);
    }
}

static void begin_single(sds__fold *fold, const sds__fold_read *read)
{
    fold->n_levels = 1;
    fold->n_reads = 0;
    begin_instances(fold, 0, read->start);
    count_read(fold, read);
}

/* The instances of levels 0 to level - 1 are complete: one more iteration of each level above. */
static void carry(sds__fold *fold, int32_t level)
{
    for (int32_t l = 0; l < level; l++) {
        sds__fold_level *inner = &fold->level[l];
        sds__fold_level *outer = &fold->level[l + 1];
        times_add(&outer->times, &inner->times, outer->done == 0);
        outer->done++;
        inner->done = 0;
        times_begin(&inner->times);
    }
}

/* Number of levels whose instance is complete but for the carry; never the outermost. */
static int32_t n_complete(const sds__fold *fold)
{
    int32_t n = 0;
    while (n < fold->n_levels - 1 && fold->level[n].done + (n > 0) == fold->level[n].repeat)
        n++;
    return n;
}

/* Emit the whole iterations of a level's present instance. */
static void emit_level(sds__fold *fold, int32_t level)
{
    const sds__fold_level *from = &fold->level[level];
    sds_trace_record record;
    if (from->done == 0) return;
    record.first.dataset = fold->shape.dataset;
    record.first.kind = fold->shape.kind;
    record.first.n_elements = fold->shape.n_elements;
    record.first.served_by = fold->shape.served_by;
    record.first.collective = fold->shape.collective;
    record.thread = fold->shape.thread;
    record.first.slab.rank = fold->shape.rank;
    for (int32_t axis = 0; axis < fold->shape.rank; axis++) {
        record.first.slab.start[axis] = from->origin[axis];
        record.first.slab.stride[axis] = fold->shape.axis[axis].stride;
        record.first.slab.count[axis] = fold->shape.axis[axis].count;
        record.first.slab.block[axis] = fold->shape.axis[axis].block;
    }
    record.n_loops = 0;
    record.n_reads = 1;
    for (int32_t l = level; l >= 0; l--) {
        const int64_t repeat = l == level ? from->done : fold->level[l].repeat;
        if (repeat == 1) continue;
        record.repeat[record.n_loops] = repeat;
        memcpy(record.advance[record.n_loops], fold->level[l].advance, start_bytes(fold));
        record.n_loops++;
        record.n_reads *= repeat;
    }
    record.first.start_ns = from->times.first_start_ns;
    record.first.elapsed_ns = record.n_reads == 1 ? from->times.sum_ns : 0;
    record.last_start_ns = from->times.last_start_ns;
    record.elapsed_sum_ns = from->times.sum_ns;
    record.elapsed_min_ns = from->times.min_ns;
    record.elapsed_max_ns = from->times.max_ns;
    memcpy(record.latency, from->times.latency, sizeof record.latency);
    fold->n_reads -= record.n_reads;
    fold->emit(fold->context, &record);
}

/* A level whose instance just ended goes on: its repeat was guessed too small. */
static int lengthen(sds__fold *fold, const sds__fold_read *read, int32_t complete)
{
    for (int32_t l = 0; l < complete; l++) {
        const sds__fold_level *level = &fold->level[l];
        if (!sds__fold_is_at(fold, read->start, level->origin, level->repeat, level->advance))
            continue;
        carry(fold, l);
        for (int32_t above = fold->n_levels - 1; above > l; above--)
            emit_level(fold, above);
        fold->n_levels = l + 1;
        if (l > 0) begin_instances(fold, l - 1, read->start);
        count_read(fold, read);
        return 1;
    }
    return 0;
}

/* The nest is complete: it becomes the body of a new outermost level. */
static void enclose(sds__fold *fold, const sds__fold_read *read)
{
    const int32_t top = fold->n_levels;
    sds__fold_level *body = &fold->level[top - 1];
    sds__fold_level *outer = &fold->level[top];
    body->repeat = body->done;
    memcpy(outer->origin, body->origin, start_bytes(fold));
    for (int32_t axis = 0; axis < fold->shape.rank; axis++)
        outer->advance[axis] = sds__wrap_sub(read->start[axis], body->origin[axis]);
    outer->times = body->times;
    outer->done = 1;
    fold->n_levels++;
    begin_instances(fold, top - 1, read->start);
    count_read(fold, read);
}

/* Emit the outermost level; the unfinished instances inside it are the new nest. */
static void shed(sds__fold *fold)
{
    emit_level(fold, --fold->n_levels);
    while (fold->n_levels > 0 && fold->level[fold->n_levels - 1].done == 0)
        fold->n_levels--;
    /* One iteration is no loop: the level inside it is the outermost one. */
    while (fold->n_levels > 1 && fold->level[fold->n_levels - 1].done == 1 &&
           fold->level[0].done == 0) {
        sds__fold_level *outer = &fold->level[fold->n_levels - 1];
        sds__fold_level *inner = &fold->level[fold->n_levels - 2];
        if (inner->done != 0) break;
        memcpy(inner->origin, outer->origin, start_bytes(fold));
        inner->times = outer->times;
        inner->done = inner->repeat;
        fold->n_levels--;
    }
}

/* Add a read to a nest that may have to change for it. Return 0 where a part of the nest was
 * emitted and the read is still to be added to what is left. */
static int fit(sds__fold *fold, const sds__fold_read *read)
{
    sds__fold_level *inner = &fold->level[0];
    const int32_t top = fold->n_levels - 1;
    const int64_t *start = read->start;
    if (fold->n_levels == 0) {
        begin_single(fold, read);
        return 1;
    }
    if (top == 0 && inner->done == 1) {
        for (int32_t axis = 0; axis < fold->shape.rank; axis++)
            inner->advance[axis] = sds__wrap_sub(start[axis], inner->origin[axis]);
        count_read(fold, read);
        return 1;
    }

    /* Where nothing is unfinished, all was carried into the outermost level (see shed). */
    const int all_carried = inner->done == 0;
    const int32_t complete = all_carried ? top : n_complete(fold);
    const sds__fold_level *next = &fold->level[complete];
    const int64_t done = next->done + (complete > 0 && !all_carried);
    if (sds__fold_is_at(fold, start, next->origin, done, next->advance)) {
        if (!all_carried) carry(fold, complete);
        if (complete > 0) begin_instances(fold, complete - 1, start);
        count_read(fold, read);
        return 1;
    }
    if (!all_carried) {
        if (lengthen(fold, read, complete)) return 1;
        carry(fold, complete);
    }
    if (complete == top && fold->n_levels < SDS_TRACE_MAX_LOOPS) {
        enclose(fold, read);
        return 1;
    }
    shed(fold);
    return 0;
}

void sds__fold_begin(sds__fold *fold, const sds__shape *shape, const sds__fold_read *read,
                     sds__record_emit emit, void *context)
{
    fold->shape = *shape;
    fold->emit = emit;
    fold->context = context;
    begin_single(fold, read);
}

void sds__fold_resume(sds__fold *fold, const sds_trace_record *record, sds__record_emit emit,
                      void *context)
{
    const sds_trace_read *first = &record->first;
    sds__fold_level *inner = &fold->level[0];
    fold->shape = (sds__shape){.dataset = first->dataset,
                               .thread = record->thread,
                               .kind = first->kind,
                               .rank = first->slab.rank,
                               .n_elements = first->n_elements,
                               .served_by = first->served_by,
                               .collective = first->collective};
    for (int32_t axis = 0; axis < first->slab.rank; axis++) {
        const int64_t advance = record->n_loops > 0 ? record->advance[0][axis] : 0;
        fold->shape.axis[axis].stride = first->slab.stride[axis];
        fold->shape.axis[axis].count = first->slab.count[axis];
        fold->shape.axis[axis].block = first->slab.block[axis];
        inner->origin[axis] = first->slab.start[axis];
        inner->advance[axis] = advance;
        fold->last[axis] = sds__wrap_add(inner->origin[axis], (record->n_reads - 1) * advance);
    }
    inner->done = record->n_reads;
    inner->times = (sds__fold_times){.first_start_ns = first->start_ns,
                                     .last_start_ns = record->last_start_ns,
                                     .sum_ns = record->elapsed_sum_ns,
                                     .min_ns = record->elapsed_min_ns,
                                     .max_ns = record->elapsed_max_ns};
    memcpy(inner->times.latency, record->latency, sizeof inner->times.latency);
    fold->n_levels = 1;
    fold->n_reads = record->n_reads;
    fold->emit = emit;
    fold->context = context;
}

void sds__fold_add(sds__fold *fold, const sds__fold_read *read)
{
    if (sds__fold_step(fold, read)) return;
    if (fold->n_reads >= UINT32_MAX) sds__fold_flush(fold);
    while (!fit(fold, read))
        continue;
}

void sds__fold_flush(sds__fold *fold)
{
    if (fold->n_levels == 0) return;
    if (fold->level[0].done > 0) carry(fold, n_complete(fold));
    for (int32_t level = fold->n_levels - 1; level >= 0; level--)
        emit_level(fold, level);
    fold->n_levels = 0;
    fold->n_reads = 0;
}
