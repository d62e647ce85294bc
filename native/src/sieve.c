#include "sieve.h"

/* A request that begins no more than a page after the one before it goes on with the same stream:
 * the kernel reads ahead. */
#define PAGE_BYTES 4096

/* How far the buffer's content reaches past the begin of a unit, where it reaches nowhere near. */
#define FAR_BEHIND (-PAGE_BYTES - 1)

typedef struct sieve_walk {
    const sds_runs *runs;
    int64_t steps; /* left */
} sieve_walk;

/* Of one unit of some level. */
typedef struct count {
    int64_t requests;
    int64_t jumps;
    int64_t reach; /* end of the last request, from the unit's begin */
} count;

static int64_t multiplied(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t added(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Pieces one stride apart, from a buffer that reaches so far past the first one's begin. */
static count count_row(int64_t pieces, int64_t stride, int64_t length, int64_t reach)
{
    if (length > SDS__SIEVE_BYTES) {
        const int64_t jumps = stride - length > PAGE_BYTES ? pieces - 1 : 0;
        return (count){pieces, jumps + (reach < -PAGE_BYTES), (pieces - 1) * stride + length};
    }
    int64_t held = 0;
    if (reach >= length) held = pieces == 1 ? 1 : smaller(pieces, (reach - length) / stride + 1);
    if (held == pieces) return (count){0, 0, reach};
    const int64_t each = pieces == 1 ? 1 : (SDS__SIEVE_BYTES - length) / stride + 1;
    const int64_t requests = (pieces - held - 1) / each + 1;
    int64_t jumps = held * stride - reach > PAGE_BYTES;
    if (each * stride - SDS__SIEVE_BYTES > PAGE_BYTES) jumps += requests - 1;
    return (count){requests, jumps, (held + (requests - 1) * each) * stride + SDS__SIEVE_BYTES};
}

static count count_unit(sieve_walk *walk, int32_t level, int64_t reach);

/* Units one after another. What a unit needs depends only on how far the buffer reaches into it:
 * once that recurs (Brent's cycle detection), all in between recurs. */
static count count_level(sieve_walk *walk, int32_t level, int64_t reach)
{
    const int64_t n = walk->runs->level[level].count;
    const int64_t stride = walk->runs->level[level].stride_bytes;
    count sum = count_unit(walk, level + 1, reach), mark = {0};
    int64_t mark_reach = INT64_MIN, mark_i = 0, next_mark = 1;
    for (int64_t i = 1; i < n; i++) {
        reach = sum.reach - stride > FAR_BEHIND ? sum.reach - stride : FAR_BEHIND;
        if (reach == mark_reach) {
            /* At least the last unit is left to count. */
            const int64_t period = i - mark_i, times = (n - 1 - i) / period;
            sum.requests = added(sum.requests, multiplied(sum.requests - mark.requests, times));
            sum.jumps = added(sum.jumps, multiplied(sum.jumps - mark.jumps, times));
            i += times * period;
            mark_reach = INT64_MIN;
            next_mark = INT64_MAX;
        } else if (i == next_mark) {
            mark_reach = reach;
            mark_i = i;
            mark = sum;
            next_mark *= 2;
        }
        if (walk->steps <= 0) {
            const double share = (double)n / (double)i;
            sum.requests = (int64_t)((double)sum.requests * share);
            sum.jumps = (int64_t)((double)sum.jumps * share);
            break;
        }
        const count unit = count_unit(walk, level + 1, reach);
        sum.requests = added(sum.requests, unit.requests);
        sum.jumps = added(sum.jumps, unit.jumps);
        sum.reach = unit.reach;
    }
    sum.reach += (n - 1) * stride;
    return sum;
}

static count count_unit(sieve_walk *walk, int32_t level, int64_t reach)
{
    const sds_runs *runs = walk->runs;
    const int32_t left = runs->n_levels - level;
    if (left > 1) return count_level(walk, level, reach);
    walk->steps--;
    if (left == 0) return count_row(1, 0, runs->run_bytes, reach);
    return count_row(runs->level[level].count, runs->level[level].stride_bytes, runs->run_bytes,
                     reach);
}

int sds__sieve_count(const sds_runs *runs, int64_t max_steps, sds_sieve *out)
{
    *out = (sds_sieve){0};
    if (runs->run_bytes <= 0) return 1;
    sieve_walk all_steps = {runs, max_steps};
    const count all = count_unit(&all_steps, 0, FAR_BEHIND);
    out->requests = all.requests;
    out->jumps = all.jumps;
    out->bytes = runs->run_bytes > SDS__SIEVE_BYTES ? multiplied(all.requests, runs->run_bytes)
                                                    : multiplied(all.requests, SDS__SIEVE_BYTES);
    return all_steps.steps > 0;
}
