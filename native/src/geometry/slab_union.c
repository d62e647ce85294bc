#include "slab_union.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"

/* Which pairs to look for, with the order that brings such pairs together. */
typedef enum pairing {
    INTERVALS,   /* neighbouring or overlapping ranges of indices */
    INTERLEAVED, /* blocks in steps whose blocks are neighbours; equally long ranges in steps */
    PHASES,      /* blocks in steps that go on */
    LEFT_OVER,   /* the same, the second a step shorter, without any hole left between */
    SINGLES,     /* blocks in steps, and one block more */
    N_PAIRINGS
} pairing;

typedef struct ordering {
    const sds__axis *rows;
    int32_t rank;
    int32_t axis;
    pairing kind;
} ordering;

sds__axis sds__axis_of(int64_t start, int64_t stride, int64_t count, int64_t block)
{
    if (count == 0 || block == 0) return (sds__axis){start, 1, 0, 1};
    if (count == 1 || stride == block) return (sds__axis){start, 1, count * block, 1};
    return (sds__axis){start, stride, count, block};
}

static int is_range(const sds__axis *axis)
{
    return axis->stride == 1;
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_axes(const sds__axis *a, const sds__axis *b)
{
    int order = compare_numbers(a->start, b->start);
    if (order == 0) order = compare_numbers(a->stride, b->stride);
    if (order == 0) order = compare_numbers(a->count, b->count);
    return order != 0 ? order : compare_numbers(a->block, b->block);
}

static int compare_by_kind(const sds__axis *a, const sds__axis *b, pairing kind)
{
    if (kind == SINGLES) return compare_numbers(a->start, b->start);
    int order = compare_numbers(a->stride, b->stride);
    if (order == 0 && kind == INTERLEAVED) order = compare_numbers(a->count, b->count);
    if (order == 0 && kind == PHASES) {
        order = compare_numbers(a->block, b->block);
        if (order == 0) order = compare_numbers(a->start % a->stride, b->start % b->stride);
    }
    return order != 0 ? order : compare_numbers(a->start, b->start);
}

static int compare_others(const sds__axis *a, const sds__axis *b, const ordering *by)
{
    for (int32_t axis = 0; axis < by->rank; axis++) {
        if (axis == by->axis) continue;
        const int order = compare_axes(&a[axis], &b[axis]);
        if (order != 0) return order;
    }
    return 0;
}

static int compare_slabs(const void *a, const void *b, void *context)
{
    const ordering *by = context;
    const sds__axis *left = by->rows + *(const size_t *)a * (size_t)by->rank;
    const sds__axis *right = by->rows + *(const size_t *)b * (size_t)by->rank;
    const int order = compare_others(left, right, by);
    return order != 0 ? order : compare_by_kind(&left[by->axis], &right[by->axis], by->kind);
}

/* Blocks in steps and the next one, one block and the steps behind it, or two blocks and all that
 * lies between. What would come after the last block may be past INT64_MAX: no sum of it is made.
 */
static int unite_single(sds__axis *into, const sds__axis *next)
{
    const int64_t ahead = next->start - into->start;
    if (is_range(next) && !is_range(into)) {
        if (into->count == 2 && ahead == into->block && next->count == into->stride - into->block) {
            *into = (sds__axis){into->start, 1, into->stride + into->block, 1};
            return 1;
        }
        if (next->count != into->block || ahead % into->stride != 0 ||
            ahead / into->stride != into->count)
            return 0;
        into->count++;
        return 1;
    }
    if (!is_range(into) || is_range(next)) return 0;
    if (into->count != next->block || ahead != next->stride) return 0;
    *into = (sds__axis){into->start, next->stride, next->count + 1, next->block};
    return 1;
}

/* A range and a later one of the same length become two blocks in a step, or such a succession
 * takes in the next. */
static int unite_equal_ranges(sds__axis *into, const sds__axis *next)
{
    if (!is_range(next)) return 0;
    if (!is_range(into)) return unite_single(into, next);
    if (into->count != next->count || next->start - into->start <= into->count) return 0;
    *into = (sds__axis){into->start, next->start - into->start, 2, into->count};
    return 1;
}

/* Make into the union where it is regular. */
static int unite_axes(sds__axis *into, const sds__axis *next, pairing kind)
{
    const int64_t ahead = next->start - into->start;
    if (ahead < 0) return 0; /* ranges that became steps are out of the order of steps */
    if (kind == INTERVALS) {
        if (!is_range(into) || !is_range(next) || ahead > into->count) return 0;
        into->count = sds__greatest(into->count, ahead + next->count);
        return 1;
    }
    if (kind == SINGLES) return unite_single(into, next);
    if (is_range(next)) return kind == INTERLEAVED && unite_equal_ranges(into, next);
    if (into->stride != next->stride) return 0;
    const int64_t block = sds__greatest(into->block, ahead + next->block);
    switch (kind) {
    case INTERLEAVED:
        if (into->count != next->count || ahead > into->block || block > into->stride) return 0;
        *into = sds__axis_of(into->start, into->stride, into->count, block);
        return 1;
    case PHASES:
        if (into->block != next->block || ahead % into->stride != 0) return 0;
        if (ahead / into->stride > into->count) return 0;
        into->count = sds__greatest(into->count, ahead / into->stride + next->count);
        return 1;
    case LEFT_OVER:
        if (into->count != next->count + 1 || ahead > into->block || block != into->stride)
            return 0;
        *into = (sds__axis){into->start, 1, next->count * into->stride + into->block, 1};
        return 1;
    default:
        return 0;
    }
}

/* Drop what was taken up by another, which is marked by a count of 0 on the first axis. */
static size_t compact(int32_t rank, size_t n, sds__axis rows[])
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i * (size_t)rank].count == 0) continue;
        if (left != i)
            memcpy(rows + left * (size_t)rank, rows + i * (size_t)rank,
                   (size_t)rank * sizeof *rows);
        left++;
    }
    return left;
}

static size_t unite_along(const ordering *by, size_t n, sds__axis rows[], size_t places[],
                          sds__deadline *deadline)
{
    const size_t rank = (size_t)by->rank;
    for (size_t i = 0; i < n; i++)
        places[i] = i;
    qsort_r(places, n, sizeof *places, compare_slabs, (void *)by);
    sds__axis *into = rows + places[0] * rank;
    int united = 0;
    for (size_t i = 1; i < n && !sds__deadline_step(deadline); i++) {
        sds__axis *next = rows + places[i] * rank;
        if (compare_others(into, next, by) == 0 &&
            unite_axes(&into[by->axis], &next[by->axis], by->kind)) {
            next[0].count = 0;
            united = 1;
        } else {
            into = next;
        }
    }
    return united ? compact(by->rank, n, rows) : n;
}

sds_status sds__unite_slabs(int32_t rank, size_t n, sds__axis rows[], sds__deadline *deadline,
                            size_t *left)
{
    *left = rank == 0 ? 1 : n;
    if (*left == 1) return SDS_OK;
    size_t *places = malloc(n * sizeof *places);
    if (places == NULL) return SDS_ENOMEM;
    int kind = 0;
    while (kind < N_PAIRINGS && n > 1 && !deadline->passed) {
        const size_t before = n;
        for (int32_t axis = rank - 1; axis >= 0 && n > 1 && !deadline->passed; axis--) {
            const ordering by = {rows, rank, axis, (pairing)kind};
            n = unite_along(&by, n, rows, places, deadline);
        }
        kind = n < before ? 0 : kind + 1;
    }
    free(places);
    *left = n;
    return deadline->passed ? SDS_ELIMIT : SDS_OK;
}
