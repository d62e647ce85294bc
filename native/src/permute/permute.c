#include "sds/permute.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "copy.h"
#include "transpose.h"

/* A copy between two strided arrays, reduced: no axis of one element, none that continues another
 * on both sides, element_bytes as long as is contiguous on both sides. Axes by falling stride of
 * the destination. */
typedef struct {
    int32_t rank;
    int64_t shape[SDS__COPY_MAX_RANK];
    int64_t src_stride[SDS__COPY_MAX_RANK];
    int64_t dst_stride[SDS__COPY_MAX_RANK];
    size_t element_bytes;
} copy_plan;

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Axis a lies outside axis b in the destination. */
static int is_outside(const copy_plan *plan, int32_t a, int32_t b)
{
    const int64_t dst_a = magnitude(plan->dst_stride[a]);
    const int64_t dst_b = magnitude(plan->dst_stride[b]);
    if (dst_a != dst_b) return dst_a > dst_b;
    return magnitude(plan->src_stride[a]) > magnitude(plan->src_stride[b]);
}

static void swap_axes(copy_plan *plan, int32_t a, int32_t b)
{
    int64_t *const of[] = {plan->shape, plan->src_stride, plan->dst_stride};
    for (int i = 0; i < 3; i++) {
        const int64_t kept = of[i][a];
        of[i][a] = of[i][b];
        of[i][b] = kept;
    }
}

static void sort_axes(copy_plan *plan)
{
    for (int32_t i = 1; i < plan->rank; i++)
        for (int32_t j = i; j > 0 && is_outside(plan, j, j - 1); j--)
            swap_axes(plan, j, j - 1);
}

/* Axis i + 1 and axis i step through memory as one axis would. */
static int continues(const copy_plan *plan, int32_t i)
{
    int64_t src;
    int64_t dst;
    return !__builtin_mul_overflow(plan->shape[i + 1], plan->src_stride[i + 1], &src) &&
           !__builtin_mul_overflow(plan->shape[i + 1], plan->dst_stride[i + 1], &dst) &&
           src == plan->src_stride[i] && dst == plan->dst_stride[i];
}

static void merge_axes(copy_plan *plan)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < plan->rank; i++) {
        plan->shape[kept] = plan->shape[i];
        plan->src_stride[kept] = plan->src_stride[i];
        plan->dst_stride[kept] = plan->dst_stride[i];
        if (kept > 0 && continues(plan, kept - 1)) {
            plan->shape[kept - 1] *= plan->shape[kept];
            plan->src_stride[kept - 1] = plan->src_stride[kept];
            plan->dst_stride[kept - 1] = plan->dst_stride[kept];
        } else {
            kept++;
        }
    }
    plan->rank = kept;
    if (kept > 0 && plan->src_stride[kept - 1] == (int64_t)plan->element_bytes &&
        plan->dst_stride[kept - 1] == (int64_t)plan->element_bytes) {
        plan->element_bytes *= (size_t)plan->shape[kept - 1];
        plan->rank--;
    }
}

/* Walks axes 0 to rank - 1 in steps; the last is fastest. */
typedef struct {
    int32_t rank;
    int64_t shape[SDS__COPY_MAX_RANK];
    int64_t step[SDS__COPY_MAX_RANK];
    int64_t src_stride[SDS__COPY_MAX_RANK];
    int64_t dst_stride[SDS__COPY_MAX_RANK];
    int64_t index[SDS__COPY_MAX_RANK];
    int64_t src_offset;
    int64_t dst_offset;
} walk;

static void walk_axis(walk *over, const copy_plan *plan, int32_t axis, int64_t step)
{
    const int32_t at = over->rank++;
    over->shape[at] = plan->shape[axis];
    over->step[at] = step;
    over->src_stride[at] = plan->src_stride[axis];
    over->dst_stride[at] = plan->dst_stride[axis];
    over->index[at] = 0;
}

/* Move on; 0 at the end. */
static int walk_next(walk *over)
{
    for (int32_t axis = over->rank - 1; axis >= 0; axis--) {
        const int64_t step = over->step[axis];
        if (over->index[axis] + step < over->shape[axis]) {
            over->index[axis] += step;
            over->src_offset += step * over->src_stride[axis];
            over->dst_offset += step * over->dst_stride[axis];
            return 1;
        }
        over->src_offset -= over->index[axis] * over->src_stride[axis];
        over->dst_offset -= over->index[axis] * over->dst_stride[axis];
        over->index[axis] = 0;
    }
    return 0;
}

static void copy_rows(const copy_plan *plan, const uint8_t *src, uint8_t *dst)
{
    const int32_t last = plan->rank - 1;
    walk over = {0};
    for (int32_t axis = 0; axis < last; axis++)
        walk_axis(&over, plan, axis, 1);
    do {
        sds__copy_apart(dst + over.dst_offset, plan->dst_stride[last], src + over.src_offset,
                        plan->src_stride[last], plan->shape[last], (int64_t)plan->element_bytes);
    } while (walk_next(&over));
}

/* across: the axis that is contiguous in the source; the last axis is so in the destination.
 * The tiles of one row of the source follow each other, so that its pages are visited once. */
static void copy_tiles(const copy_plan *plan, int32_t across, const uint8_t *src, uint8_t *dst,
                       uint8_t *buffer)
{
    const int32_t last = plan->rank - 1;
    const int64_t edge = sds__transpose_edge(plan->element_bytes);
    walk over = {0};
    walk_axis(&over, plan, last, edge);
    for (int32_t axis = 0; axis < last; axis++)
        if (axis != across) walk_axis(&over, plan, axis, 1);
    walk_axis(&over, plan, across, edge);
    do {
        const sds__tile tile = {
            .n_rows = sds__least(edge, plan->shape[last] - over.index[0]),
            .n_columns = sds__least(edge, plan->shape[across] - over.index[over.rank - 1]),
            .src_row_stride = plan->src_stride[last],
            .dst_column_stride = plan->dst_stride[across],
        };
        sds__transpose_tile(&tile, plan->element_bytes, src + over.src_offset,
                            dst + over.dst_offset, buffer);
    } while (walk_next(&over));
}

/* The axis along which the source is contiguous; -1 where there is none. */
static int32_t contiguous_source_axis(const copy_plan *plan)
{
    for (int32_t axis = 0; axis < plan->rank; axis++)
        if (plan->src_stride[axis] == (int64_t)plan->element_bytes) return axis;
    return -1;
}

/* Memory for tiles. Not on the stack, which may be a small thread's; nor of aligned_alloc, which
 * leaves holes in glibc's heap that it fills with nothing else. One is kept for the next call: of
 * what is freed, malloc keeps some for each few threads. */
static uint8_t *kept_tiles = NULL;

static uint8_t *take_tiles(void)
{
    uint8_t *tiles = __atomic_exchange_n(&kept_tiles, NULL, __ATOMIC_ACQUIRE);
    return tiles != NULL ? tiles : malloc(SDS__TRANSPOSE_BYTES + SDS__TRANSPOSE_LINE);
}

static void give_tiles(uint8_t *tiles)
{
    uint8_t *none = NULL;
    if (!__atomic_compare_exchange_n(&kept_tiles, &none, tiles, 0, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED))
        free(tiles);
}

static void run(copy_plan *plan, const void *src, void *dst)
{
    sort_axes(plan);
    merge_axes(plan);
    if (plan->rank == 0) {
        memcpy(dst, src, plan->element_bytes);
        return;
    }
    const int32_t across = contiguous_source_axis(plan);
    const int32_t last = plan->rank - 1;
    if (across < 0 || across == last || sds__transpose_edge(plan->element_bytes) == 0 ||
        plan->dst_stride[last] != (int64_t)plan->element_bytes) {
        copy_rows(plan, src, dst);
        return;
    }
    uint8_t *tiles = take_tiles();
    if (tiles == NULL) {
        copy_rows(plan, src, dst);
        return;
    }
    copy_tiles(plan, across, src, dst,
               tiles + SDS__TRANSPOSE_LINE - (uintptr_t)tiles % SDS__TRANSPOSE_LINE);
    give_tiles(tiles);
}

sds_status sds_copy_strided(int32_t rank, const int64_t shape[], const int64_t src_stride[],
                            const int64_t dst_stride[], size_t element_bytes, const void *src,
                            void *dst)
{
    copy_plan plan = {.element_bytes = element_bytes};
    if (rank < 0 || rank > SDS__COPY_MAX_RANK || element_bytes == 0) return SDS_EINVAL;
    int empty = 0;
    for (int32_t axis = 0; axis < rank; axis++) {
        if (shape[axis] < 0) return SDS_EINVAL;
        empty |= shape[axis] == 0;
        if (shape[axis] == 1) continue;
        plan.shape[plan.rank] = shape[axis];
        plan.src_stride[plan.rank] = src_stride[axis];
        plan.dst_stride[plan.rank] = dst_stride[axis];
        plan.rank++;
    }
    if (!empty) run(&plan, src, dst);
    return SDS_OK;
}

/* C-order strides. */
static sds_status strides_of(int32_t rank, const int64_t shape[], size_t element_bytes,
                             int64_t stride[])
{
    int64_t bytes = (int64_t)element_bytes;
    for (int32_t axis = rank - 1; axis >= 0; axis--) {
        if (shape[axis] < 0) return SDS_EINVAL;
        stride[axis] = bytes;
        if (__builtin_mul_overflow(bytes, shape[axis] > 0 ? shape[axis] : 1, &bytes))
            return SDS_EOVERFLOW;
    }
    return SDS_OK;
}

sds_status sds_permute(int32_t rank, const int64_t shape[], const int32_t order[],
                       size_t element_bytes, const void *src, void *dst)
{
    int64_t src_stride[SDS__COPY_MAX_RANK];
    int64_t permuted[SDS__COPY_MAX_RANK];
    int64_t permuted_stride[SDS__COPY_MAX_RANK];
    int64_t dst_stride[SDS__COPY_MAX_RANK];
    uint64_t seen = 0;
    if (rank < 0 || rank > SDS_MAX_RANK || element_bytes == 0 || element_bytes > INT64_MAX)
        return SDS_EINVAL;
    sds_status status = strides_of(rank, shape, element_bytes, src_stride);
    if (status != SDS_OK) return status;
    for (int32_t i = 0; i < rank; i++) {
        if (order[i] < 0 || order[i] >= rank || (seen >> order[i] & 1)) return SDS_EINVAL;
        seen |= UINT64_C(1) << order[i];
        permuted[i] = shape[order[i]];
        permuted_stride[i] = src_stride[order[i]];
    }
    status = strides_of(rank, permuted, element_bytes, dst_stride);
    if (status != SDS_OK) return status;
    return sds_copy_strided(rank, permuted, permuted_stride, dst_stride, element_bytes, src, dst);
}
