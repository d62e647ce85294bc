/* Features of an operation of several processes. Processes whose reads are translates of each
 * other by whole periods of the striping share one walk; a union is walked part by part, and run
 * by run only where parts lie among each other in the file. */
#include "sds/operation.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "deadline.h"
#include "extent_merge.h"
#include "runs_clip.h"
#include "slab_union.h"
#include "storage_map.h"

/* One process's read, or one part of a union. */
typedef struct part {
    const sds__axis *axes;
    int64_t begin, end;      /* file range that holds it */
    const sds__place *place; /* the component that holds it whole; NULL: several do */
    int64_t phase;           /* of begin within a period of that component's striping */
} part;

typedef struct operation {
    sds__storage_map map;
    sds__deadline deadline;
} operation;

/* Unbroken successions of requests in the read that was added, over all OSTs and components. */
static int64_t segments_of(const sds__storage_map *map)
{
    int64_t segments = 0;
    for (size_t i = 0; i < map->n_places; i++) {
        const sds__touched *touched = &map->places[i].touched;
        for (int64_t slot = 0; slot < touched->map->n_slots; slot++)
            if (touched->requests[slot].count > 0) segments += touched->requests[slot].holes + 1;
    }
    return segments;
}

/* Take a process's features, or the union's, into those of the operation. */
static sds_status take_features(operation *op, int64_t runs, int64_t bytes_useful,
                                int64_t processes, sds_operation_features *out)
{
    sds_features found;
    const sds_status status = sds__storage_map_features(&op->map, &found);
    if (status != SDS_OK) return status;
    int64_t useful, touched, all_runs;
    if (__builtin_mul_overflow(bytes_useful, processes, &useful) ||
        __builtin_mul_overflow(found.bytes_touched.high, processes, &touched) ||
        __builtin_mul_overflow(runs, processes, &all_runs) ||
        __builtin_add_overflow(out->bytes_useful, useful, &out->bytes_useful) ||
        __builtin_add_overflow(out->bytes_touched, touched, &out->bytes_touched) ||
        __builtin_add_overflow(out->runs, all_runs, &out->runs))
        return SDS_EOVERFLOW;
    out->runs_most = sds__greatest(out->runs_most, runs);
    out->segments_most = sds__greatest(out->segments_most, segments_of(&op->map));
    out->bytes_touched_most = sds__greatest(out->bytes_touched_most, found.bytes_touched.high);
    out->block_depth = sds__greatest(out->block_depth, found.block_depth.high);
    out->block_gap_count = sds__greatest(out->block_gap_count, found.block_gap_count.high);
    out->block_gap_distance = sds__greatest(out->block_gap_distance, found.block_gap_distance.high);
    return SDS_OK;
}

/* ---- regular selections ---- */

typedef struct selections {
    const sds_array *array;
    size_t n; /* that hold anything */
    part *parts;
    sds__axis *rows;
} selections;

static sds_hyperslab slab_of(const selections *all, const sds__axis axes[])
{
    sds_hyperslab slab = {.rank = all->array->rank};
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        slab.start[axis] = axes[axis].start;
        slab.stride[axis] = axes[axis].stride;
        slab.count[axis] = axes[axis].count;
        slab.block[axis] = axes[axis].block;
    }
    return slab;
}

static sds_status runs_of(const selections *all, const part *of, sds_runs *out)
{
    const sds_hyperslab slab = slab_of(all, of->axes);
    return sds_runs_of(all->array, &slab, out);
}

static int64_t shortcut_gap(const selections *all, const part *of)
{
    const sds_hyperslab slab = slab_of(all, of->axes);
    int64_t gap = 0;
    return sds_block_gap_paper(all->array, &slab, &gap) == SDS_OK ? gap : -1;
}

/* Check and bring into one form; what holds nothing is left out. */
static sds_status take_slabs(selections *all, const sds_slabs *slabs)
{
    const size_t rank = (size_t)slabs->rank;
    for (size_t i = 0; i < slabs->n; i++) {
        sds_hyperslab slab = {.rank = slabs->rank};
        sds__axis *row = all->rows + all->n * rank;
        for (size_t axis = 0; axis < rank; axis++) {
            const size_t at = i * rank + axis;
            slab.start[axis] = slabs->start[at];
            slab.stride[axis] = slabs->stride[at];
            slab.count[axis] = slabs->count[at];
            slab.block[axis] = slabs->block[at];
            row[axis] = sds__axis_of(slabs->start[at], slabs->stride[at], slabs->count[at],
                                     slabs->block[at]);
        }
        sds_runs runs;
        const sds_status status = sds_runs_of(all->array, &slab, &runs);
        if (status != SDS_OK) return status;
        if (runs.run_bytes > 0)
            all->parts[all->n++] = (part){row, runs.first_offset, sds__runs_end(&runs), NULL, 0};
    }
    return SDS_OK;
}

static int compare_begins(const void *a, const void *b)
{
    const part *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

/* Bring translates by whole periods together, the first in the file first. */
static int compare_translates(const void *a, const void *b, void *context)
{
    const part *left = a, *right = b;
    const int32_t rank = *(const int32_t *)context;
    if (left->place != right->place) return left->place < right->place ? -1 : 1;
    if (left->phase != right->phase) return left->phase < right->phase ? -1 : 1;
    for (int32_t axis = 0; axis < rank; axis++) {
        const sds__axis *of_left = &left->axes[axis], *of_right = &right->axes[axis];
        if (of_left->stride != of_right->stride) return of_left->stride < of_right->stride ? -1 : 1;
        if (of_left->count != of_right->count) return of_left->count < of_right->count ? -1 : 1;
        if (of_left->block != of_right->block) return of_left->block < of_right->block ? -1 : 1;
    }
    return compare_begins(a, b);
}

static int are_translates(const part *a, const part *b, int32_t rank)
{
    if (a->place != b->place || a->phase != b->phase) return 0;
    for (int32_t axis = 0; axis < rank; axis++)
        if (a->axes[axis].stride != b->axes[axis].stride ||
            a->axes[axis].count != b->axes[axis].count ||
            a->axes[axis].block != b->axes[axis].block)
            return 0;
    return 1;
}

static sds_status add_independent(operation *op, selections *all, sds_operation_features *out)
{
    int32_t rank = all->array->rank;
    for (size_t i = 0; i < all->n; i++) {
        part *of = &all->parts[i];
        of->place = sds__storage_map_place(&op->map, of->begin, of->end);
        of->phase = of->place != NULL ? of->begin % of->place->map.symmetry_bytes : of->begin;
    }
    qsort_r(all->parts, all->n, sizeof *all->parts, compare_translates, &rank);
    for (size_t i = 0; i < all->n;) {
        const part *first = &all->parts[i];
        sds_runs runs;
        sds_status status = runs_of(all, first, &runs);
        if (status != SDS_OK) return status;
        size_t n = 1;
        while (i + n < all->n && are_translates(first, &all->parts[i + n], rank))
            n++;
        sds__storage_map_clear(&op->map);
        status = sds__storage_map_add_runs(&op->map, &runs, &op->deadline);
        if (status == SDS_OK)
            status =
                take_features(op, sds_runs_count(&runs), sds_runs_bytes(&runs), (int64_t)n, out);
        if (status != SDS_OK) return status;
        out->block_gap_paper = sds__greatest(out->block_gap_paper, shortcut_gap(all, first));
        for (size_t k = 0; k < n; k++) {
            if (first->place == NULL)
                sds__storage_map_count(&op->map);
            else
                sds__storage_map_count_moved(&op->map, first->place, first[k].begin - first->begin);
        }
        i += n;
    }
    return SDS_OK;
}

/* Count runs of a union, which come in file order, and their bytes. */
typedef struct tally {
    int64_t runs;
    int64_t bytes;
    int64_t end; /* of the last run; -1: none yet */
} tally;

static void count_runs(tally *so_far, int64_t begin, int64_t runs, int64_t bytes, int64_t end)
{
    so_far->runs += runs - (begin == so_far->end);
    so_far->bytes += bytes;
    so_far->end = end;
}

static sds_status add_merged(operation *op, size_t n, sds__source *sources[], tally *so_far)
{
    sds__extent_merge merge;
    sds_extent range;
    sds__extent_merge_init(&merge, n, sources);
    while (sds__extent_merge_next(&merge, &range)) {
        const int64_t end = range.offset + range.length;
        sds__storage_map_add(&op->map, range.offset, end);
        count_runs(so_far, range.offset, 1, range.length, end);
        if (sds__deadline_step(&op->deadline)) return SDS_ELIMIT;
    }
    return SDS_OK;
}

/* Take what was added, which is all that is read at once, into the features. */
static sds_status take_read(operation *op, const tally *so_far, sds_operation_features *out)
{
    const sds_status status = take_features(op, so_far->runs, so_far->bytes, 1, out);
    if (status == SDS_OK) sds__storage_map_count(&op->map);
    return status;
}

typedef struct runs_source {
    sds__source source;
    sds_runs runs;
    sds_run_cursor cursor;
} runs_source;

static int next_run(sds__source *self, sds_extent *out)
{
    return sds_run_cursor_next(&((runs_source *)self)->cursor, out);
}

/* Add parts that lie among each other in the file. */
static sds_status add_entangled(operation *op, const selections *all, size_t n, const part parts[],
                                tally *so_far)
{
    runs_source *each = malloc(n * sizeof *each);
    sds__source **sources = malloc(n * sizeof *sources);
    sds_status status = each != NULL && sources != NULL ? SDS_OK : SDS_ENOMEM;
    for (size_t i = 0; i < n && status == SDS_OK; i++) {
        status = runs_of(all, &parts[i], &each[i].runs);
        if (status != SDS_OK) break;
        each[i].source.next = next_run;
        sds_run_cursor_init(&each[i].cursor, &each[i].runs);
        sources[i] = &each[i].source;
    }
    if (status == SDS_OK) status = add_merged(op, n, sources, so_far);
    free(sources);
    free(each);
    return status;
}

static sds_status unite(selections *all, sds__deadline *deadline)
{
    const int32_t rank = all->array->rank;
    const sds_status status = sds__unite_slabs(rank, all->n, all->rows, deadline, &all->n);
    for (size_t i = 0; i < all->n && status == SDS_OK; i++) {
        part *united = &all->parts[i];
        united->axes = all->rows + i * (size_t)rank;
        sds_runs runs;
        const sds_status found = runs_of(all, united, &runs);
        if (found != SDS_OK) return found;
        united->begin = runs.first_offset;
        united->end = sds__runs_end(&runs);
    }
    if (status == SDS_OK) qsort(all->parts, all->n, sizeof *all->parts, compare_begins);
    return status;
}

static sds_status add_union(operation *op, selections *all, sds_operation_features *out)
{
    sds_status status = unite(all, &op->deadline);
    tally so_far = {0, 0, -1};
    for (size_t i = 0; i < all->n && status == SDS_OK;) {
        const part *first = &all->parts[i];
        int64_t end = first->end;
        size_t n = 1;
        for (; i + n < all->n && all->parts[i + n].begin < end; n++)
            end = sds__greatest(end, all->parts[i + n].end);
        if (n == 1) {
            sds_runs runs;
            status = runs_of(all, first, &runs);
            if (status == SDS_OK)
                status = sds__storage_map_add_runs(&op->map, &runs, &op->deadline);
            if (status == SDS_OK)
                count_runs(&so_far, first->begin, sds_runs_count(&runs), sds_runs_bytes(&runs),
                           end);
        } else {
            status = add_entangled(op, all, n, first, &so_far);
        }
        i += n;
    }
    if (status != SDS_OK) return status;
    if (all->n == 1) out->block_gap_paper = shortcut_gap(all, &all->parts[0]);
    return take_read(op, &so_far, out);
}

static sds_status operate_on_slabs(operation *op, selections *all, const sds_slabs *slabs,
                                   sds_io_mode mode, const sds_storage *storage,
                                   sds_operation_features *out)
{
    sds_status status = take_slabs(all, slabs);
    if (status != SDS_OK) return status;
    int64_t begin = all->n > 0 ? INT64_MAX : 0, end = 0;
    for (size_t i = 0; i < all->n; i++) {
        begin = sds__least(begin, all->parts[i].begin);
        end = sds__greatest(end, all->parts[i].end);
    }
    status = sds__storage_map_init(&op->map, storage, begin, end);
    if (status != SDS_OK || all->n == 0) return status;
    out->processes = (int64_t)all->n;
    return mode == SDS_IO_COLLECTIVE ? add_union(op, all, out) : add_independent(op, all, out);
}

/* What both ways of giving reads end with. */
static sds_status finish(operation *op, sds_status status, sds_operation_features *out,
                         sds_ost_loads *loads)
{
    if (status == SDS_OK) status = sds__storage_map_totals(&op->map, out);
    if (status == SDS_OK && loads != NULL) status = sds__storage_map_loads(&op->map, loads);
    sds__storage_map_free(&op->map);
    return status;
}

static void begin_results(sds_operation_features *out, sds_ost_loads *loads)
{
    memset(out, 0, sizeof *out);
    out->block_gap_paper = -1;
    if (loads != NULL) memset(loads, 0, sizeof *loads);
}

sds_status sds_operation_of_slabs(const sds_array *array, const sds_slabs *slabs, sds_io_mode mode,
                                  const sds_storage *storage, int64_t budget_ns,
                                  sds_operation_features *out, sds_ost_loads *loads)
{
    operation op = {.deadline = sds__deadline_in(budget_ns)};
    begin_results(out, loads);
    if (slabs->rank != array->rank || slabs->rank < 0 || slabs->rank > SDS_MAX_RANK)
        return SDS_EINVAL;
    const size_t n = slabs->n > 0 ? slabs->n : 1; /* malloc(0) may be NULL */
    const size_t rank = slabs->rank > 0 ? (size_t)slabs->rank : 1;
    selections all = {.array = array};
    all.parts = malloc(n * sizeof *all.parts);
    all.rows = malloc(n * rank * sizeof *all.rows);
    sds_status status = SDS_ENOMEM;
    if (all.parts != NULL && all.rows != NULL)
        status = operate_on_slabs(&op, &all, slabs, mode, storage, out);
    free(all.rows);
    free(all.parts);
    return finish(&op, status, out, loads);
}

/* ---- listed extents ---- */

typedef struct list_source {
    sds__source source;
    const sds_extent *next, *end;
} list_source;

static int next_extent(sds__source *self, sds_extent *out)
{
    list_source *list = (list_source *)self;
    if (list->next == list->end) return 0;
    *out = *list->next++;
    return 1;
}

/* Check one process's extents; widen [begin, end) to hold them. */
static sds_status check_extents(const sds_extent *extent, const sds_extent *stop, int64_t *begin,
                                int64_t *end)
{
    int64_t last = 0;
    for (; extent < stop; extent++) {
        if (extent->offset < last || extent->length <= 0) return SDS_EINVAL;
        if (__builtin_add_overflow(extent->offset, extent->length, &last)) return SDS_EOVERFLOW;
        *begin = sds__least(*begin, extent->offset);
        *end = sds__greatest(*end, last);
    }
    return SDS_OK;
}

static sds_status add_lists(operation *op, const sds_process_extents *reads,
                            sds_operation_features *out)
{
    for (size_t i = 0; i < reads->n; i++) {
        if (reads->first[i] == reads->first[i + 1]) continue;
        list_source list = {{next_extent, {0, 0}},
                            reads->extents + reads->first[i],
                            reads->extents + reads->first[i + 1]};
        sds__source *source = &list.source;
        tally so_far = {0, 0, -1};
        sds__storage_map_clear(&op->map);
        sds_status status = add_merged(op, 1, &source, &so_far);
        if (status == SDS_OK) status = take_read(op, &so_far, out);
        if (status != SDS_OK) return status;
    }
    return SDS_OK;
}

static sds_status add_union_of_lists(operation *op, const sds_process_extents *reads,
                                     sds_operation_features *out)
{
    list_source *lists = malloc(reads->n * sizeof *lists);
    sds__source **sources = malloc(reads->n * sizeof *sources);
    sds_status status = lists != NULL && sources != NULL ? SDS_OK : SDS_ENOMEM;
    tally so_far = {0, 0, -1};
    if (status == SDS_OK) {
        for (size_t i = 0; i < reads->n; i++) {
            lists[i] = (list_source){{next_extent, {0, 0}},
                                     reads->extents + reads->first[i],
                                     reads->extents + reads->first[i + 1]};
            sources[i] = &lists[i].source;
        }
        status = add_merged(op, reads->n, sources, &so_far);
    }
    free(sources);
    free(lists);
    if (status != SDS_OK) return status;
    return take_read(op, &so_far, out);
}

sds_status sds_operation_of_extents(const sds_process_extents *reads, sds_io_mode mode,
                                    const sds_storage *storage, int64_t budget_ns,
                                    sds_operation_features *out, sds_ost_loads *loads)
{
    operation op = {.deadline = sds__deadline_in(budget_ns)};
    begin_results(out, loads);
    int64_t begin = INT64_MAX, end = 0;
    for (size_t i = 0; i < reads->n; i++) {
        if (reads->first[i + 1] < reads->first[i]) return SDS_EINVAL;
        const sds_status status = check_extents(reads->extents + reads->first[i],
                                                reads->extents + reads->first[i + 1], &begin, &end);
        if (status != SDS_OK) return status;
        out->processes += reads->first[i + 1] > reads->first[i];
    }
    sds_status status = sds__storage_map_init(&op.map, storage, sds__least(begin, end), end);
    if (status == SDS_OK && out->processes > 0)
        status = mode == SDS_IO_COLLECTIVE ? add_union_of_lists(&op, reads, out)
                                           : add_lists(&op, reads, out);
    return finish(&op, status, out, loads);
}
