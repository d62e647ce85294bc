#include "sieve.h"

#include "arithmetic.h"
#include "read_cost.h"

typedef struct sieve_walk {
    const sds_runs *runs;
    int64_t buffer_bytes;
    int64_t near_bytes;
    int64_t
        far_behind; /* how far the buffer reaches past a unit's begin, where it is nowhere near */
    int64_t steps;  /* left */
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
static count count_row(const sieve_walk *walk, int64_t pieces, int64_t stride, int64_t length,
                       int64_t reach)
{
    const int64_t buffer = walk->buffer_bytes, near = walk->near_bytes;
    if (length > buffer) {
        const int64_t jumps = stride - length > near ? pieces - 1 : 0;
        return (count){pieces, jumps + (reach < -near), (pieces - 1) * stride + length};
    }
    int64_t held = 0;
    if (reach >= length) held = pieces == 1 ? 1 : smaller(pieces, (reach - length) / stride + 1);
    if (held == pieces) return (count){0, 0, reach};
    const int64_t each = pieces == 1 ? 1 : (buffer - length) / stride + 1;
    const int64_t requests = (pieces - held - 1) / each + 1;
    int64_t jumps = held * stride - reach > near;
    if (each * stride - buffer > near) jumps += requests - 1;
    return (count){requests, jumps, (held + (requests - 1) * each) * stride + buffer};
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
        reach = sum.reach - stride > walk->far_behind ? sum.reach - stride : walk->far_behind;
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
    if (left == 0) return count_row(walk, 1, 0, runs->run_bytes, reach);
    return count_row(walk, runs->level[level].count, runs->level[level].stride_bytes,
                     runs->run_bytes, reach);
}

int sds__sieve_count(const sds_runs *runs, int64_t buffer_bytes, int64_t near_bytes,
                     int64_t max_steps, sds_sieve *out)
{
    *out = (sds_sieve){0};
    if (runs->run_bytes <= 0) return 1;
    sieve_walk walk = {runs, buffer_bytes, near_bytes, -near_bytes - 1, max_steps};
    const count all = count_unit(&walk, 0, walk.far_behind);
    out->requests = all.requests;
    out->jumps = all.jumps;
    out->bytes =
        multiplied(all.requests, runs->run_bytes > buffer_bytes ? runs->run_bytes : buffer_bytes);
    return walk.steps > 0;
}

/* ---- what it takes ---- */

/* Steps of counting the requests of one read. */
#define MAX_STEPS 512

/* What HDF5 adds to a call, and what it takes to find a run in the buffer and to copy it. */
#define CALL_MORE_S 0.3e-6
#define RUN_S 11e-9

/* From and to the processor's caches, which the buffer stays in unless it is a large one. */
#define HOT_S_PER_BYTE 1e-11
#define HOT_RUN_S 6e-9
#define LARGE_BUFFER_BYTES (INT64_C(1) << 20)

/* A program that reads once usually reads on. HDF5 has the device give it more than it needs, which
 * is cached when the next reads want it; the engine does not. So HDF5's time from the device is the
 * mean over a number of reads of a shape, those behind which it has read as much as the dataset
 * holds being cached. */
#define USUAL_READS 10

/* The kernel reads ahead of three requests that follow each other closely. */
static double startups(double requests, double jumps)
{
    return requests > 2 * jumps ? jumps : requests;
}

void sds__sieve_runs(const sds_runs *runs, int64_t buffer_bytes, sds__sieved *out)
{
    sds_sieve counted;
    sds__sieve_count(runs, buffer_bytes, buffer_bytes, MAX_STEPS, &counted);
    *out = (sds__sieved){
        .buffer_bytes = buffer_bytes,
        .runs = (double)sds_runs_pieces(runs),
        .requests = (double)counted.requests,
        .bytes = (double)counted.bytes,
        .startups = startups((double)counted.requests, (double)counted.jumps),
    };
}

void sds__sieve_extents(size_t n, const sds_extent extents[], int64_t unit_bytes,
                        int64_t buffer_bytes, double factor, sds__sieved *out)
{
    int64_t begin = 0, end = 0; /* of the buffer */
    double requests = 0, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t offset = extents[i].offset * unit_bytes;
        const int64_t length = extents[i].length * unit_bytes;
        if (offset >= begin && offset + length <= end) continue;
        requests += 1;
        bytes += (double)sds__greatest(length, buffer_bytes);
        if (length > buffer_bytes) continue;
        begin = offset;
        end = offset + buffer_bytes;
    }
    *out = (sds__sieved){
        .buffer_bytes = buffer_bytes,
        .runs = (double)n * factor,
        .requests = requests * factor,
        .bytes = bytes * factor,
        .startups = requests * factor,
    };
}

static double calls_s(const sds__sieved *read, const sds_io_parameters *costs)
{
    return read->requests * (costs->call_s + CALL_MORE_S);
}

double sds__sieved_hot_s(const sds__sieved *read, const sds_io_parameters *costs)
{
    const double s_per_byte =
        read->buffer_bytes < LARGE_BUFFER_BYTES ? HOT_S_PER_BYTE : costs->copy_s_per_byte;
    return calls_s(read, costs) + read->bytes * s_per_byte + read->runs * HOT_RUN_S;
}

double sds__sieved_warm_s(const sds__sieved *read, const sds_io_parameters *costs)
{
    return calls_s(read, costs) + read->bytes * costs->copy_s_per_byte + read->runs * RUN_S;
}

/* One request at a time, as a stream is counted: what it costs to copy is part of its rate. */
double sds__sieved_cold_s(const sds__sieved *read, const sds_io_parameters *costs)
{
    return read->startups * costs->reads.startup_s + read->bytes * sds__merged_s_per_byte(costs) +
           calls_s(read, costs) + read->runs * RUN_S;
}

double sds__sieved_walk_s(const sds__sieved *read, const sds_io_parameters *costs,
                          int64_t dataset_bytes)
{
    const double until_cached = (double)dataset_bytes / read->bytes;
    const double cold_part = until_cached < USUAL_READS ? until_cached / USUAL_READS : 1;
    return cold_part * sds__sieved_cold_s(read, costs) +
           (1 - cold_part) * sds__sieved_warm_s(read, costs);
}
