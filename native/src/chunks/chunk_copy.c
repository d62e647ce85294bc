#include "chunk_copy.h"

#include <string.h>

#include "arithmetic.h"
#include "copy.h"

static inline sds_span span_at(const sds_axis_spans *axis, size_t i)
{
    if (axis->spans != NULL) return axis->spans[i];
    const sds_span *first = &axis->regular;
    return (sds_span){first->first + (int64_t)i * axis->stride, first->length,
                      (int64_t)i * first->length};
}

static sds_status check_regular(const sds_axis_spans *axis, int64_t extent)
{
    const sds_span *first = &axis->regular;
    int64_t last, result;
    if (first->first < 0 || first->length < 1 || first->position != 0 || axis->n > INT64_MAX ||
        (axis->n > 1 && axis->stride < first->length))
        return SDS_EINVAL;
    if (__builtin_mul_overflow((int64_t)axis->n - 1, axis->stride, &last) ||
        __builtin_add_overflow(last, first->first, &last) ||
        __builtin_mul_overflow((int64_t)axis->n, first->length, &result))
        return SDS_EOVERFLOW;
    return first->length > extent - last || result > axis->result_length ? SDS_EINVAL : SDS_OK;
}

static sds_status check_axis(const sds_axis_spans *axis, int64_t extent)
{
    int64_t end = 0;
    if (axis->spans == NULL && axis->n > 0) return check_regular(axis, extent);
    for (size_t i = 0; i < axis->n; i++) {
        const sds_span *span = &axis->spans[i];
        if (span->length < 1 || span->first < end || span->position < 0 ||
            span->length > axis->result_length - span->position ||
            span->length > extent - span->first)
            return SDS_EINVAL;
        end = span->first + span->length;
    }
    return SDS_OK;
}

static sds_status check_points(const sds__chunk_selection *self)
{
    const sds_chunk_points *points = self->points;
    const int64_t n_in_chunk = self->chunk_bytes / self->dataset->element_bytes;
    if (points->n_result < 0 || points->first[0] != 0) return SDS_EINVAL;
    for (size_t i = 0; i < self->chunks->n; i++) {
        if (points->first[i + 1] < points->first[i]) return SDS_EINVAL;
        for (int64_t k = points->first[i]; k < points->first[i + 1]; k++)
            if (points->in_chunk[k] < (k > points->first[i] ? points->in_chunk[k - 1] : 0) ||
                points->in_chunk[k] >= n_in_chunk || points->in_result[k] < 0 ||
                points->in_result[k] >= points->n_result)
                return SDS_EINVAL;
    }
    return SDS_OK;
}

static sds_status check_indices(const sds_chunked_dataset *dataset, const sds_chunk_list *chunks)
{
    for (size_t i = 0; i < chunks->n; i++)
        for (int32_t k = 0; k < dataset->rank; k++) {
            const int64_t index = chunks->index[i * (size_t)dataset->rank + (size_t)k];
            if (index < 0 || index > (dataset->extent[k] - 1) / dataset->chunk[k])
                return SDS_EINVAL;
        }
    return SDS_OK;
}

sds_status sds__chunk_selection_init(sds__chunk_selection *self, const sds_chunked_dataset *dataset,
                                     const sds_axis_spans axis[], const sds_chunk_points *points,
                                     const sds_chunk_list *chunks)
{
    if (dataset->rank < 1 || dataset->rank > SDS_MAX_RANK || dataset->element_bytes < 1 ||
        (axis == NULL) == (points == NULL))
        return SDS_EINVAL;
    *self = (sds__chunk_selection){.dataset = dataset,
                                   .axis = axis,
                                   .points = points,
                                   .chunks = chunks,
                                   .chunk_bytes = dataset->element_bytes,
                                   .out_bytes = dataset->element_bytes};
    for (int32_t k = dataset->rank - 1; k >= 0; k--) {
        if (dataset->chunk[k] < 1 || dataset->extent[k] < 0) return SDS_EINVAL;
        self->chunk_stride[k] = self->chunk_bytes;
        if (__builtin_mul_overflow(self->chunk_bytes, dataset->chunk[k], &self->chunk_bytes))
            return SDS_EOVERFLOW;
        if (axis == NULL) continue;
        if (axis[k].result_length < 0) return SDS_EINVAL;
        self->out_stride[k] = self->out_bytes;
        if (__builtin_mul_overflow(self->out_bytes, axis[k].result_length, &self->out_bytes))
            return SDS_EOVERFLOW;
        const sds_status status = check_axis(&axis[k], dataset->extent[k]);
        if (status != SDS_OK) return status;
    }
    const sds_status status = check_indices(dataset, chunks);
    if (status != SDS_OK || points == NULL) return status;
    if (__builtin_mul_overflow(self->out_bytes, points->n_result, &self->out_bytes))
        return SDS_EOVERFLOW;
    return check_points(self);
}

/* Spans of an axis that lie in a chunk; the first and the last may reach out of it. */
typedef struct {
    const sds_axis_spans *axis;
    size_t first;
    size_t n;
    int64_t begin; /* indices of the chunk */
    int64_t end;
} axis_part;

/* How many spans of an axis begin before an index. */
static size_t spans_before(const sds_axis_spans *axis, int64_t index)
{
    size_t low = 0, high = axis->n;
    if (axis->spans == NULL) {
        if (index <= axis->regular.first || axis->n == 0) return 0;
        if (axis->n == 1) return 1;
        const int64_t before = sds__divide_up(index - axis->regular.first, axis->stride);
        return (uint64_t)before < axis->n ? (size_t)before : axis->n;
    }
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (axis->spans[middle].first < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static axis_part part_of_axis(const sds_axis_spans *axis, int64_t begin, int64_t end)
{
    size_t first = spans_before(axis, begin);
    if (first > 0) { /* which may reach into the chunk */
        const sds_span before = span_at(axis, first - 1);
        first -= before.first + before.length > begin;
    }
    return (axis_part){axis, first, spans_before(axis, end) - first, begin, end};
}

/* A span, cut to the chunk; first counts from where the chunk begins. */
static inline sds_span clipped(const axis_part *part, size_t i)
{
    const sds_span span = span_at(part->axis, part->first + i);
    const int64_t begin = span.first > part->begin ? span.first : part->begin;
    const int64_t span_end = span.first + span.length;
    const int64_t end = span_end < part->end ? span_end : part->end;
    return (sds_span){begin - part->begin, end - begin, span.position + (begin - span.first)};
}

/* Axes from `inner` on are selected in one run, of unit_bytes for each index of axis inner. */
typedef struct {
    axis_part part[SDS_MAX_RANK];
    int32_t inner;
} chunk_part;

static int is_whole(const sds__chunk_selection *self, const axis_part *part, int32_t axis)
{
    if (part->n != 1) return 0;
    const sds_span span = clipped(part, 0);
    return span.length == self->dataset->chunk[axis] &&
           span.length == self->axis[axis].result_length;
}

/* 0 where nothing is selected. */
static int part_of(const sds__chunk_selection *self, size_t i, chunk_part *part)
{
    const sds_chunked_dataset *dataset = self->dataset;
    const int64_t *index = self->chunks->index + i * (size_t)dataset->rank;
    for (int32_t k = 0; k < dataset->rank; k++) {
        const int64_t begin = index[k] * dataset->chunk[k];
        part->part[k] = part_of_axis(&self->axis[k], begin, begin + dataset->chunk[k]);
        if (part->part[k].n == 0) return 0;
    }
    part->inner = dataset->rank - 1;
    while (part->inner > 0 && is_whole(self, &part->part[part->inner], part->inner))
        part->inner--;
    return 1;
}

sds__chunk_share sds__chunk_selected(const sds__chunk_selection *self, size_t i)
{
    chunk_part part;
    sds__chunk_share share = {0, 0, 0};
    if (self->points != NULL) {
        const int64_t n = self->points->first[i + 1] - self->points->first[i];
        share.bytes = n * self->dataset->element_bytes;
        return share;
    }
    if (!part_of(self, i, &part)) return share;
    share.bytes = self->dataset->element_bytes;
    for (int32_t k = self->dataset->rank - 1; k >= 0; k--) {
        int64_t selected = 0, longest = 0;
        for (size_t s = 0; s < part.part[k].n; s++) {
            const sds_span span = clipped(&part.part[k], s);
            selected += span.length;
            if (span.length > longest) longest = span.length;
        }
        share.bytes *= selected;
        share.position += clipped(&part.part[k], 0).position * self->out_stride[k];
        if (k == part.inner) share.run_bytes = longest * self->chunk_stride[k];
    }
    return share;
}

/* Where an odometer over the outer axes stands. */
typedef struct {
    size_t span[SDS_MAX_RANK];
    int64_t within[SDS_MAX_RANK]; /* the span */
    int64_t length[SDS_MAX_RANK]; /* of the span */
    int64_t from;                 /* bytes, in the chunk */
    int64_t to;                   /* bytes, in the result */
} odometer;

static void enter_span(const sds__chunk_selection *self, const chunk_part *part, odometer *at,
                       int32_t axis, int sign)
{
    const sds_span span = clipped(&part->part[axis], at->span[axis]);
    at->length[axis] = span.length;
    at->from += sign * span.first * self->chunk_stride[axis];
    at->to += sign * span.position * self->out_stride[axis];
}

static void start(const sds__chunk_selection *self, const chunk_part *part, odometer *at)
{
    at->from = at->to = 0;
    for (int32_t k = 0; k < part->inner; k++) {
        at->span[k] = 0;
        at->within[k] = 0;
        enter_span(self, part, at, k, 1);
    }
}

/* To the next row; 0 after the last. */
static int step(const sds__chunk_selection *self, const chunk_part *part, odometer *at)
{
    for (int32_t k = part->inner - 1; k >= 0; k--) {
        if (++at->within[k] < at->length[k]) {
            at->from += self->chunk_stride[k];
            at->to += self->out_stride[k];
            return 1;
        }
        at->within[k]--;
        at->from -= at->within[k] * self->chunk_stride[k];
        at->to -= at->within[k] * self->out_stride[k];
        at->within[k] = 0;
        enter_span(self, part, at, k, -1);
        at->span[k] = at->span[k] + 1 < part->part[k].n ? at->span[k] + 1 : 0;
        enter_span(self, part, at, k, 1);
        if (at->span[k] != 0) return 1;
    }
    return 0;
}

static void copy_points(const sds__chunk_selection *self, size_t i, const uint8_t *chunk,
                        uint8_t *out)
{
    const sds_chunk_points *points = self->points;
    const int64_t n_bytes = self->dataset->element_bytes;
    for (int64_t k = points->first[i]; k < points->first[i + 1]; k++)
        sds__copy_few(out + points->in_result[k] * n_bytes, chunk + points->in_chunk[k] * n_bytes,
                      n_bytes);
}

void sds__chunk_copy(const sds__chunk_selection *self, size_t i, const uint8_t *chunk, uint8_t *out)
{
    chunk_part part;
    if (self->points != NULL) {
        copy_points(self, i, chunk, out);
        return;
    }
    if (!part_of(self, i, &part)) return;
    const axis_part *inner = &part.part[part.inner];
    const int64_t unit = self->chunk_stride[part.inner], out_unit = self->out_stride[part.inner];
    odometer at;
    start(self, &part, &at);
    do {
        for (size_t s = 0; s < inner->n; s++) {
            const sds_span span = clipped(inner, s);
            sds__copy_few(out + at.to + span.position * out_unit,
                          chunk + at.from + span.first * unit, span.length * unit);
        }
    } while (step(self, &part, &at));
}

static size_t pieces_of_points(const sds__chunk_selection *self, size_t i, size_t max,
                               sds_piece pieces[])
{
    const sds_chunk_points *points = self->points;
    const int64_t n_bytes = self->dataset->element_bytes, offset = self->chunks->offset[i];
    const size_t n = (size_t)(points->first[i + 1] - points->first[i]);
    if (n > max) return n;
    for (int64_t k = points->first[i]; k < points->first[i + 1]; k++)
        *pieces++ = (sds_piece){offset + points->in_chunk[k] * n_bytes, n_bytes,
                                points->in_result[k] * n_bytes};
    return n;
}

size_t sds__chunk_pieces(const sds__chunk_selection *self, size_t i, size_t max, sds_piece pieces[])
{
    chunk_part part;
    if (self->points != NULL) return pieces_of_points(self, i, max, pieces);
    if (!part_of(self, i, &part)) return 0;
    size_t n = part.part[part.inner].n;
    for (int32_t k = 0; k < part.inner; k++) {
        int64_t selected = 0;
        for (size_t s = 0; s < part.part[k].n; s++)
            selected += clipped(&part.part[k], s).length;
        n *= (size_t)selected;
    }
    if (n > max) return n;
    const int64_t offset = self->chunks->offset[i];
    const axis_part *inner = &part.part[part.inner];
    const int64_t unit = self->chunk_stride[part.inner], out_unit = self->out_stride[part.inner];
    odometer at;
    start(self, &part, &at);
    do {
        for (size_t s = 0; s < inner->n; s++) {
            const sds_span span = clipped(inner, s);
            *pieces++ = (sds_piece){offset + at.from + span.first * unit, span.length * unit,
                                    at.to + span.position * out_unit};
        }
    } while (step(self, &part, &at));
    return n;
}
