#include "runs_clip.h"

#include "arithmetic.h"

typedef struct clip {
    const sds_runs *runs;
    int64_t begin, end;
    sds__runs_visitor *visit;
    void *context;
} clip;

int64_t sds__runs_end(const sds_runs *runs)
{
    int64_t end = runs->first_offset + runs->run_bytes;
    for (int32_t k = 0; k < runs->n_levels; k++)
        end += (runs->level[k].count - 1) * runs->level[k].stride_bytes;
    return end;
}

/* Bytes from the first to behind the last of one unit of level k and inwards. */
static int64_t span_of(const sds_runs *runs, int32_t k)
{
    int64_t span = runs->run_bytes;
    for (; k < runs->n_levels; k++)
        span += (runs->level[k].count - 1) * runs->level[k].stride_bytes;
    return span;
}

/* Visit count units of the levels from k + 1 on, which lie a stride of level k apart. */
static sds_status visit_units(const clip *at, int32_t k, int64_t offset, int64_t count)
{
    const sds_runs *runs = at->runs;
    sds_runs part;
    part.first_offset = offset;
    part.run_bytes = runs->run_bytes;
    part.n_levels = 0;
    if (count > 1) part.level[part.n_levels++] = (sds_level){count, runs->level[k].stride_bytes};
    for (int32_t inner = k + 1; inner < runs->n_levels; inner++)
        part.level[part.n_levels++] = runs->level[inner];
    return at->visit(at->context, &part);
}

/* Visit what lies within the bounds of a unit that begins at an offset and crosses one of them. */
static sds_status visit_crossing(const clip *at, int32_t k, int64_t offset)
{
    if (k == at->runs->n_levels) {
        const int64_t begin = sds__greatest(offset, at->begin);
        const int64_t end = sds__least(offset + at->runs->run_bytes, at->end);
        if (begin >= end) return SDS_OK;
        const sds_runs part = {.first_offset = begin, .run_bytes = end - begin};
        return at->visit(at->context, &part);
    }
    const int64_t stride = at->runs->level[k].stride_bytes, count = at->runs->level[k].count;
    const int64_t span = span_of(at->runs, k + 1);
    /* Units first to last - 1 lie within; their neighbours may cross a bound. */
    int64_t first = at->begin > offset ? sds__divide_up(at->begin - offset, stride) : 0;
    first = sds__least(first, count);
    int64_t last = at->end - offset >= span ? (at->end - offset - span) / stride + 1 : 0;
    last = sds__greatest(sds__least(last, count), first);
    sds_status status = SDS_OK;
    if (first > 0) status = visit_crossing(at, k + 1, offset + (first - 1) * stride);
    if (status == SDS_OK && last > first)
        status = visit_units(at, k, offset + first * stride, last - first);
    /* Where first > last - 1, the unit before first may have crossed both bounds. */
    if (status == SDS_OK && last < count && offset + last * stride < at->end)
        status = visit_crossing(at, k + 1, offset + last * stride);
    return status;
}

sds_status sds__runs_clip(const sds_runs *runs, int64_t begin, int64_t end,
                          sds__runs_visitor *visit, void *context)
{
    if (runs->run_bytes == 0 || runs->first_offset >= end || sds__runs_end(runs) <= begin)
        return SDS_OK;
    if (begin <= runs->first_offset && sds__runs_end(runs) <= end) return visit(context, runs);
    const clip at = {runs, begin, end, visit, context};
    return visit_crossing(&at, 0, runs->first_offset);
}
