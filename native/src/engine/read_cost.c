#include "read_cost.h"

#include "arithmetic.h"

/* Of memory and of mappings. */
#define LINE_BYTES 64
#define PAGE_BYTES INT64_C(4096)
#define FAULT_BYTES (INT64_C(64) << 10)
#define TABLE_BYTES (INT64_C(2) << 20)

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double sds__startup_s(const sds_io_parameters *costs)
{
    return sds_pmd_time_s(&costs->reads, 1, 1, 0);
}

double sds__streamed_s_per_byte(const sds_io_parameters *costs)
{
    return costs->reads.tt_s_per_byte + costs->reads.cud_s_per_byte;
}

double sds__merged_s_per_byte(const sds_io_parameters *costs)
{
    return larger(costs->buffered_s_per_byte, sds__streamed_s_per_byte(costs));
}

double sds__queued_startup_s(const sds_io_parameters *costs, int32_t depth)
{
    /* What one waits for by itself is shared by all in flight; the rest is each request's own. */
    const double waited_s =
        sds__startup_s(costs) * (1.0 / depth - 1.0 / larger(costs->queue_depth, 1));
    return costs->queued_startup_s + larger(waited_s, 0);
}

void sds__add_cost_bounds(sds__hole_census *census)
{
    static const int64_t bounds[] = {SDS__JOIN_TOUCHING, SDS__STREAM_HOLE_BYTES, LINE_BYTES - 1,
                                     PAGE_BYTES - 1,     FAULT_BYTES - 1,        TABLE_BYTES - 1};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        sds__census_add_bound(census, bounds[i]);
}

static sds__group_totals count_unbounded(const sds__read_shape *shape, int64_t max_hole)
{
    return sds__count(shape, max_hole, INT64_MAX, INT64_MAX);
}

/* How many blocks of the file, of a size and aligned to it, are touched: about, as the places of
 * the runs within blocks are not looked at. */
static double blocks_touched(const sds__read_shape *shape, int64_t block_bytes)
{
    const sds__group_totals near = count_unbounded(shape, block_bytes - 1);
    const double exact = (double)near.bytes_read / (double)block_bytes;
    return exact + (double)near.groups * (1 - 1 / (double)block_bytes);
}

/* The first time whole lines come from memory; later, loads that the processor sees coming. */
static double mapped_s(const sds__read_shape *shape, const sds_io_parameters *costs, int is_mapped)
{
    const double loads_s = costs->guard_s + blocks_touched(shape, PAGE_BYTES) * costs->load_s;
    if (is_mapped)
        return loads_s + (double)shape->n_pieces * costs->pick_s +
               (double)shape->bytes_useful * costs->loaded_s_per_byte;
    return loads_s + costs->map_s + blocks_touched(shape, TABLE_BYTES) * costs->table_s +
           blocks_touched(shape, FAULT_BYTES) * costs->touch_s +
           blocks_touched(shape, LINE_BYTES) * LINE_BYTES * costs->loaded_s_per_byte;
}

/* Calls that find everything in the page cache. */
static double warm_s(const sds_io_parameters *costs, const sds_read_plan *plan,
                     const sds__group_totals *totals)
{
    const double calls_s = (double)totals->groups * costs->call_s;
    const double useful = (double)totals->bytes_useful;
    const double holes = larger((double)totals->bytes_read - useful, 0);
    switch (plan->executor) {
    case SDS_EXECUTOR_SIEVE:
        if (totals->longest_merged_bytes == 0) break;
        /* A buffer beyond the second-level cache costs what memory costs. */
        return calls_s +
               (double)totals->bytes_read * (totals->longest_merged_bytes > SDS__LARGE_BUFFER_BYTES
                                                 ? costs->copy_s_per_byte
                                                 : costs->cached_copy_s_per_byte) +
               useful * costs->cached_copy_s_per_byte + (double)totals->pieces * costs->pick_s;
    case SDS_EXECUTOR_VECTOR:
        return calls_s + (double)totals->pieces * costs->vector_s +
               useful * costs->copy_s_per_byte + holes * costs->hole_s_per_byte;
    case SDS_EXECUTOR_LIST:
        return costs->queue_setup_s + calls_s + useful * costs->copy_s_per_byte;
    default:
        break;
    }
    return calls_s + useful * costs->copy_s_per_byte;
}

/* The device is as fast as a stream, copying included; every hole that is jumped costs a start-up.
 */
static double streamed_s(const sds__read_shape *shape, const sds_io_parameters *costs,
                         int64_t max_hole)
{
    const sds__group_totals stream = count_unbounded(shape, max_hole);
    return (double)stream.groups * sds__startup_s(costs) +
           (double)stream.bytes_read * sds__streamed_s_per_byte(costs);
}

/* Whether requests in flight are so close to each other that they gain nothing over a stream. */
static int is_near(const sds__read_shape *shape, const sds__group_totals *totals)
{
    return totals->longest_merged_bytes > 0 ||
           count_unbounded(shape, SDS__STREAM_HOLE_BYTES).groups <= shape->n_pieces / 2;
}

static double cold_s(const sds__read_shape *shape, const sds_io_parameters *costs,
                     const sds_read_plan *plan, const sds__group_totals *totals)
{
    const double groups = (double)totals->groups;
    const double useful = (double)totals->bytes_useful;
    const double to_pick_s =
        totals->longest_merged_bytes > 0
            ? (double)totals->pieces * costs->pick_s + useful * costs->cached_copy_s_per_byte
            : 0;
    const double queue_s = costs->queue_setup_s + sds__startup_s(costs) +
                           groups * sds__queued_startup_s(costs, plan->queue_depth);
    switch (plan->executor) {
    case SDS_EXECUTOR_SIEVE:
        if (totals->longest_merged_bytes == 0) break;
        return groups * costs->call_s + to_pick_s +
               streamed_s(shape, costs,
                          sds__greatest(plan->max_hole_bytes, SDS__STREAM_HOLE_BYTES));
    case SDS_EXECUTOR_VECTOR:
        return groups * costs->call_s + (double)totals->pieces * costs->vector_s +
               streamed_s(shape, costs, plan->max_hole_bytes);
    case SDS_EXECUTOR_LIST:
        return queue_s + to_pick_s +
               (double)totals->bytes_read * (is_near(shape, totals) ? sds__merged_s_per_byte(costs)
                                                                    : costs->buffered_s_per_byte);
    case SDS_EXECUTOR_DIRECT:
        return costs->direct_setup_s + queue_s + to_pick_s +
               ((double)totals->bytes_read + groups * SDS__DIRECT_ALIGNMENT) *
                   costs->direct_s_per_byte;
    default:
        break;
    }
    return groups * costs->call_s + streamed_s(shape, costs, SDS__STREAM_HOLE_BYTES);
}

double sds__predict_s(const sds__read_shape *shape, const sds_io_parameters *costs, int is_mapped,
                      const sds_read_plan *plan, const sds__group_totals *totals)
{
    if (plan->executor == SDS_EXECUTOR_MAPPED) return mapped_s(shape, costs, is_mapped);
    if (plan->cache == SDS_CACHE_WARM && plan->executor != SDS_EXECUTOR_DIRECT)
        return warm_s(costs, plan, totals);
    return cold_s(shape, costs, plan, totals);
}
