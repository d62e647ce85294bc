/* From a selection of an array to runs of bytes in a file. */
#include <string.h>

#include "sds/geometry.h"

static sds_status check_array(const sds_array *array)
{
    if (array->rank < 0 || array->rank > SDS_MAX_RANK) return SDS_EINVAL;
    if (array->element_bytes <= 0 || array->offset_bytes < 0) return SDS_EINVAL;
    int empty = 0;
    for (int32_t axis = 0; axis < array->rank; axis++) {
        if (array->extent[axis] < 0) return SDS_EINVAL;
        if (array->extent[axis] == 0) empty = 1;
    }
    int64_t end = array->element_bytes;
    for (int32_t axis = 0; axis < array->rank && !empty; axis++)
        if (__builtin_mul_overflow(end, array->extent[axis], &end)) return SDS_EOVERFLOW;
    if (__builtin_add_overflow(end, array->offset_bytes, &end)) return SDS_EOVERFLOW;
    return SDS_OK;
}

static sds_status check_axis(const sds_hyperslab *slab, int32_t axis, int64_t extent)
{
    const int64_t start = slab->start[axis], stride = slab->stride[axis];
    const int64_t count = slab->count[axis], block = slab->block[axis];
    if (start < 0 || stride < 1 || count < 0 || block < 0) return SDS_EINVAL;
    if (count > 1 && stride < block) return SDS_EINVAL;
    if (count == 0 || block == 0) return SDS_OK;
    int64_t end;
    if (__builtin_mul_overflow(count - 1, stride, &end) ||
        __builtin_add_overflow(end, start, &end) || __builtin_add_overflow(end, block, &end))
        return SDS_EBOUNDS;
    return end <= extent ? SDS_OK : SDS_EBOUNDS;
}

static sds_status check_slab(const sds_array *array, const sds_hyperslab *slab)
{
    sds_status status = check_array(array);
    if (status != SDS_OK) return status;
    if (slab->rank != array->rank) return SDS_EINVAL;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        status = check_axis(slab, axis, array->extent[axis]);
        if (status != SDS_OK) return status;
    }
    return SDS_OK;
}

/* Levels under construction, innermost first. */
typedef struct builder {
    int64_t run_bytes;
    int64_t span_bytes; /* from the first byte of the first piece to the end of the last */
    int32_t n_levels;
    sds_level level[2 * SDS_MAX_RANK];
} builder;

/* Repeat everything so far count times. */
static void repeat(builder *build, int64_t count, int64_t stride_bytes)
{
    if (count == 1) return;
    if (build->n_levels == 0 && stride_bytes == build->run_bytes) {
        build->run_bytes *= count;
    } else if (build->n_levels > 0 &&
               stride_bytes == build->level[build->n_levels - 1].count *
                                   build->level[build->n_levels - 1].stride_bytes) {
        build->level[build->n_levels - 1].count *= count; /* the inner progression goes on */
    } else {
        build->level[build->n_levels++] = (sds_level){count, stride_bytes};
    }
    build->span_bytes += (count - 1) * stride_bytes;
}

sds_status sds_runs_of(const sds_array *array, const sds_hyperslab *slab, sds_runs *out)
{
    const sds_status status = check_slab(array, slab);
    if (status != SDS_OK) return status;
    memset(out, 0, sizeof *out);
    out->first_offset = array->offset_bytes;
    for (int32_t axis = 0; axis < slab->rank; axis++)
        if (slab->count[axis] == 0 || slab->block[axis] == 0) return SDS_OK;

    builder build = {.run_bytes = array->element_bytes, .span_bytes = array->element_bytes};
    int64_t axis_bytes = array->element_bytes; /* from one index of the axis to the next */
    for (int32_t axis = slab->rank - 1; axis >= 0; axis--) {
        out->first_offset += slab->start[axis] * axis_bytes;
        repeat(&build, slab->block[axis], axis_bytes);
        if (slab->count[axis] > 1)
            repeat(&build, slab->count[axis], slab->stride[axis] * axis_bytes);
        axis_bytes *= array->extent[axis];
    }
    out->run_bytes = build.run_bytes;
    out->n_levels = build.n_levels;
    for (int32_t k = 0; k < build.n_levels; k++)
        out->level[k] = build.level[build.n_levels - 1 - k];
    return SDS_OK;
}

int64_t sds_runs_pieces(const sds_runs *runs)
{
    int64_t pieces = runs->run_bytes > 0;
    for (int32_t k = 0; k < runs->n_levels; k++)
        pieces *= runs->level[k].count;
    return pieces;
}

int64_t sds_runs_bytes(const sds_runs *runs)
{
    return sds_runs_pieces(runs) * runs->run_bytes;
}

int64_t sds_runs_span(const sds_runs *runs)
{
    int64_t span = runs->run_bytes;
    for (int32_t k = 0; k < runs->n_levels; k++)
        span += (runs->level[k].count - 1) * runs->level[k].stride_bytes;
    return span;
}

int64_t sds_runs_count(const sds_runs *runs)
{
    /* A piece touches the next one where a level steps by exactly the span of what is inside. */
    int64_t count = sds_runs_pieces(runs);
    int64_t groups = count;
    int64_t span = runs->run_bytes;
    for (int32_t k = runs->n_levels - 1; k >= 0; k--) {
        groups /= runs->level[k].count;
        if (runs->level[k].stride_bytes == span) count -= (runs->level[k].count - 1) * groups;
        span += (runs->level[k].count - 1) * runs->level[k].stride_bytes;
    }
    return count;
}

void sds_run_cursor_init(sds_run_cursor *cursor, const sds_runs *runs)
{
    memset(cursor, 0, sizeof *cursor);
    cursor->runs = runs;
    cursor->offset = runs->first_offset;
    cursor->done = runs->run_bytes == 0;
}

/* Step to the next piece. */
static void advance(sds_run_cursor *cursor)
{
    const sds_runs *runs = cursor->runs;
    for (int32_t k = runs->n_levels - 1; k >= 0; k--) {
        if (++cursor->index[k] < runs->level[k].count) {
            cursor->offset += runs->level[k].stride_bytes;
            return;
        }
        cursor->index[k] = 0;
        cursor->offset -= (runs->level[k].count - 1) * runs->level[k].stride_bytes;
    }
    cursor->done = 1;
}

int sds_run_cursor_next(sds_run_cursor *cursor, sds_extent *out)
{
    if (cursor->done) return 0;
    out->offset = cursor->offset;
    int64_t end = cursor->offset;
    while (!cursor->done && cursor->offset == end) {
        end += cursor->runs->run_bytes;
        advance(cursor);
    }
    out->length = end - out->offset;
    return 1;
}

void sds_hyperslab_shape(const sds_hyperslab *slab, int64_t shape[])
{
    for (int32_t axis = 0; axis < slab->rank; axis++)
        shape[axis] = slab->count[axis] * slab->block[axis];
}

sds_status sds_hyperslab_permute(const sds_hyperslab *slab, const int32_t order[],
                                 sds_hyperslab *out)
{
    if (slab->rank < 0 || slab->rank > SDS_MAX_RANK) return SDS_EINVAL;
    uint32_t seen = 0;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        if (order[axis] < 0 || order[axis] >= slab->rank) return SDS_EINVAL;
        if (seen & (UINT32_C(1) << order[axis])) return SDS_EINVAL;
        seen |= UINT32_C(1) << order[axis];
    }
    sds_hyperslab permuted = {.rank = slab->rank};
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        permuted.start[axis] = slab->start[order[axis]];
        permuted.stride[axis] = slab->stride[order[axis]];
        permuted.count[axis] = slab->count[order[axis]];
        permuted.block[axis] = slab->block[order[axis]];
    }
    *out = permuted;
    return SDS_OK;
}

sds_status sds_block_gap_paper(const sds_array *array, const sds_hyperslab *slab, int64_t *out)
{
    const sds_status status = check_slab(array, slab);
    if (status != SDS_OK) return status;
    int64_t gap = 0;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        const int64_t selected = slab->count[axis] * slab->block[axis];
        gap += axis == slab->rank - 1 ? selected : array->extent[axis] - selected;
    }
    *out = gap;
    return SDS_OK;
}
