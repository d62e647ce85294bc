/* Counts what every way to read would do, predicts how long it would take, and takes the least.
 *
 * The counts are exact for the plan that is handed out. While ways are compared, those of a list
 * are taken from a census of its holes, which costs one walk whatever the number of ways. */
#include "sds/read_plan.h"

#include <string.h>

#include "arithmetic.h"
#include "planner.h"

#define KIB INT64_C(1024)
#define MIB (INT64_C(1) << 20)

/* Bounds of one request, by executor. The small sieve stays in a second-level cache; a cold one is
 * as long as what the kernel reads ahead; those in flight are many. */
#define WARM_SIEVE_BYTES (256 * KIB)
#define COLD_SIEVE_BYTES (4 * MIB)
#define VECTOR_BYTES (8 * MIB)
#define QUEUED_BYTES MIB
#define DIRECT_BYTES (512 * KIB)
#define DIRECT_DEPTH 16
/* Requests in flight beyond these bytes make no device faster; fewer than these, many slower. */
#define BYTES_IN_FLIGHT (8 * MIB)
#define LEAST_DEPTH 8
#define LEAST_QUEUED_BYTES (64 * KIB)
#define LIST_REGION_BYTES MIB /* of pieces that touch but go to several places */

#define DIRECT_ALIGNMENT (4 * KIB) /* at either end of a request */
#define IO_VECTOR_BYTES 16         /* one struct iovec */

/* What the kernel takes for the next part of a stream, and reads ahead. */
#define STREAM_HOLE_BYTES (4 * KIB)

/* Of memory and of mappings. */
#define LINE_BYTES 64
#define PAGE_BYTES (4 * KIB)
#define FAULT_BYTES (64 * KIB)
#define TABLE_BYTES (2 * MIB)

/* The holes of a list, by size: classes between bounds, which are sorted. */
#define MAX_BOUNDS 12

typedef struct {
    int n_bounds;
    int64_t bound[MAX_BOUNDS];
    int64_t holes[MAX_BOUNDS + 1]; /* class c: holes longer than c of the bounds */
    int64_t bytes[MAX_BOUNDS + 1];
    int64_t span;
} census;

typedef struct {
    const sds__access *access;
    const sds_io_parameters *parameters;
    const sds_plan_given *given;
    sds_cache cache;
    int32_t queue_depth;
    int32_t regions_per_request;
    int64_t sieve_buffer_bytes;
    int64_t max_memory_bytes;
    int64_t n_pieces;
    int64_t runs;
    int64_t bytes_useful;
    const census *holes; /* NULL: count exactly */
} planner;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static int is_warm(const planner *self)
{
    return self->cache == SDS_CACHE_WARM;
}

/* Of one request more, one at a time, as this process sees it: what p and n do to it is in the
 * measured figure. */
static double startup_s(const planner *self)
{
    return sds_pmd_time_s(&self->parameters->reads, 1, 1, 0);
}

/* Of a byte, likewise. */
static double streamed_s_per_byte(const planner *self)
{
    return self->parameters->reads.tt_s_per_byte + self->parameters->reads.cud_s_per_byte;
}

/* Of one request more where so many are in flight. */
static double queued_startup_s(const planner *self, int32_t depth)
{
    return larger(self->parameters->queued_startup_s, startup_s(self) / depth);
}

/* The largest hole that is cheaper to read than another request. */
static int64_t hole_worth(double request_s, double s_per_byte)
{
    const double hole = s_per_byte > 0 ? request_s / s_per_byte : 0x1p62;
    return hole < 0x1p62 ? (int64_t)hole : INT64_MAX;
}

static void take_census(const sds__access *access, census *holes)
{
    const sds_piece *pieces = access->pieces;
    int64_t end = pieces[0].offset;
    memset(holes->holes, 0, sizeof holes->holes);
    memset(holes->bytes, 0, sizeof holes->bytes);
    for (size_t i = 0; i < access->n; i++) {
        const int64_t hole = greatest(pieces[i].offset - end, 0);
        int class = 0;
        for (int k = 0; k < holes->n_bounds; k++)
            class += hole > holes->bound[k];
        holes->holes[class]++;
        holes->bytes[class] += hole;
        end = greatest(end, pieces[i].offset + pieces[i].length);
    }
    holes->span = end - pieces[0].offset;
}

static void add_bound(census *holes, int64_t bound)
{
    int at = 0;
    while (at < holes->n_bounds && holes->bound[at] < bound)
        at++;
    if (at < holes->n_bounds && holes->bound[at] == bound) return;
    memmove(&holes->bound[at + 1], &holes->bound[at],
            (size_t)(holes->n_bounds - at) * sizeof *holes->bound);
    holes->bound[at] = bound;
    holes->n_bounds++;
}

/* From the census: cuts are taken to be as few as the bytes and pieces allow. */
static void estimate(const planner *self, int64_t max_hole, int64_t max_bytes, int64_t max_pieces,
                     sds__group_totals *out)
{
    const census *holes = self->holes;
    int64_t groups = 1, left_out = 0;
    for (int c = 1; c <= holes->n_bounds; c++)
        if (holes->bound[c - 1] >= max_hole) {
            groups += holes->holes[c];
            left_out += holes->bytes[c];
        }
    if (max_hole == SDS__JOIN_NOTHING) groups = self->n_pieces;
    out->pieces = self->n_pieces;
    out->bytes_useful = self->bytes_useful;
    out->bytes_read = max_hole == SDS__JOIN_NOTHING ? self->bytes_useful : holes->span - left_out;
    groups = greatest(groups, sds__divide_up(out->bytes_read, max_bytes));
    groups = greatest(groups, sds__divide_up(self->n_pieces, max_pieces));
    out->groups = groups;
    out->longest_bytes = least(max_bytes, out->bytes_read);
    out->longest_merged_bytes = groups < self->n_pieces ? out->longest_bytes : 0;
    out->most_pieces = least(max_pieces, self->n_pieces - groups + 1);
}

static sds__group_totals count(const planner *self, int64_t max_hole, int64_t max_bytes,
                               int64_t max_pieces)
{
    sds__group_totals totals;
    if (self->holes != NULL)
        estimate(self, max_hole, max_bytes, max_pieces, &totals);
    else
        sds__group_totals_of(self->access, max_hole, max_bytes, max_pieces, &totals);
    return totals;
}

static sds__group_totals count_unbounded(const planner *self, int64_t max_hole)
{
    return count(self, max_hole, INT64_MAX, INT64_MAX);
}

/* How many blocks of the file, of a size and aligned to it, are touched: about, as the places of
 * the runs within blocks are not looked at. */
static double blocks_touched(const planner *self, int64_t block_bytes)
{
    const sds__group_totals near = count_unbounded(self, block_bytes - 1);
    const double exact = (double)near.bytes_read / (double)block_bytes;
    return exact + (double)near.groups * (1 - 1 / (double)block_bytes);
}

static double mapped_s(const planner *self)
{
    const sds_io_parameters *costs = self->parameters;
    double seconds = costs->guard_s;
    if (!self->given->is_mapped)
        seconds += costs->map_s + blocks_touched(self, TABLE_BYTES) * costs->table_s +
                   blocks_touched(self, FAULT_BYTES) * costs->touch_s;
    return seconds + blocks_touched(self, PAGE_BYTES) * costs->load_s +
           blocks_touched(self, LINE_BYTES) * LINE_BYTES * costs->loaded_s_per_byte;
}

/* Calls that find everything in the page cache. */
static double warm_s(const planner *self, const sds_read_plan *plan,
                     const sds__group_totals *totals)
{
    const sds_io_parameters *costs = self->parameters;
    const double calls_s = (double)totals->groups * costs->call_s;
    const double useful = (double)totals->bytes_useful;
    const double holes = larger((double)totals->bytes_read - useful, 0);
    switch (plan->executor) {
    case SDS_EXECUTOR_SIEVE:
        if (totals->longest_merged_bytes == 0) break;
        /* A buffer beyond the second-level cache costs what memory costs. */
        return calls_s +
               (double)totals->bytes_read * (totals->longest_merged_bytes > COLD_SIEVE_BYTES
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

/* The device is as fast as a stream; every hole that is jumped costs a start-up. */
static double streamed_s(const planner *self, int64_t max_hole)
{
    const sds__group_totals stream = count_unbounded(self, max_hole);
    return (double)stream.groups * startup_s(self) +
           (double)stream.bytes_read * streamed_s_per_byte(self);
}

static double cold_s(const planner *self, const sds_read_plan *plan,
                     const sds__group_totals *totals)
{
    const sds_io_parameters *costs = self->parameters;
    const double groups = (double)totals->groups;
    const double useful = (double)totals->bytes_useful;
    const double to_pick_s =
        totals->longest_merged_bytes > 0
            ? (double)totals->pieces * costs->pick_s + useful * costs->cached_copy_s_per_byte
            : 0;
    const double queue_s =
        costs->queue_setup_s + startup_s(self) + groups * queued_startup_s(self, plan->queue_depth);
    switch (plan->executor) {
    case SDS_EXECUTOR_SIEVE:
        return groups * costs->call_s + to_pick_s +
               streamed_s(self, greatest(plan->max_hole_bytes, STREAM_HOLE_BYTES));
    case SDS_EXECUTOR_VECTOR:
        return groups * costs->call_s + (double)totals->pieces * costs->vector_s +
               streamed_s(self, plan->max_hole_bytes);
    case SDS_EXECUTOR_LIST:
        return queue_s + to_pick_s + (double)totals->bytes_read * costs->buffered_s_per_byte;
    case SDS_EXECUTOR_DIRECT:
        return costs->direct_setup_s + queue_s + to_pick_s +
               ((double)totals->bytes_read + groups * DIRECT_ALIGNMENT) * costs->direct_s_per_byte;
    default:
        return groups * costs->call_s + streamed_s(self, STREAM_HOLE_BYTES);
    }
}

static double predict_s(const planner *self, const sds_read_plan *plan,
                        const sds__group_totals *totals)
{
    if (plan->executor == SDS_EXECUTOR_MAPPED) return mapped_s(self);
    if (is_warm(self) && plan->executor != SDS_EXECUTOR_DIRECT) return warm_s(self, plan, totals);
    return cold_s(self, plan, totals);
}

static int64_t memory_of(const sds_read_plan *plan, const sds__group_totals *totals)
{
    const int64_t in_flight = least(plan->queue_depth, totals->groups);
    switch (plan->executor) {
    case SDS_EXECUTOR_SIEVE:
        return totals->longest_merged_bytes;
    case SDS_EXECUTOR_VECTOR:
        if (totals->longest_merged_bytes == 0) return 0;
        return least(plan->max_hole_bytes, totals->longest_merged_bytes) +
               2 * SDS__VECTOR_PIECES * IO_VECTOR_BYTES;
    case SDS_EXECUTOR_LIST:
        return in_flight * totals->longest_merged_bytes;
    case SDS_EXECUTOR_DIRECT:
        return in_flight * (totals->longest_bytes + 2 * DIRECT_ALIGNMENT);
    default:
        return 0;
    }
}

/* What buffers may take: of all that is asked for, or what is left of one sieve buffer. With the
 * output that is at most the larger of twice the output and one sieve buffer. */
static int64_t memory_bound(const planner *self)
{
    if (self->max_memory_bytes > 0) return self->max_memory_bytes;
    return greatest(self->bytes_useful, self->sieve_buffer_bytes - self->bytes_useful);
}

static void bound_requests(const planner *self, sds_read_plan *plan, int64_t group_bytes)
{
    plan->group_bytes = greatest(least(group_bytes, memory_bound(self)), 1);
}

/* Bound requests that all go through buffers. */
static void bound_queue(const planner *self, sds_read_plan *plan, int64_t group_bytes,
                        int32_t depth)
{
    const int64_t bound = memory_bound(self);
    const int64_t around = plan->executor == SDS_EXECUTOR_DIRECT ? 2 * DIRECT_ALIGNMENT : 0;
    plan->group_bytes = least(group_bytes, greatest(bound / depth - around, LEAST_QUEUED_BYTES));
    plan->queue_depth = (int32_t)greatest(least(depth, bound / (plan->group_bytes + around)), 1);
    if (plan->queue_depth == 1)
        plan->group_bytes = greatest(least(plan->group_bytes, bound - around), 1);
}

/* Many short requests in flight, or few long ones; and shorter ones where their buffers would
 * take too much. */
static void fit_queue(const planner *self, sds_read_plan *plan)
{
    const sds__group_totals totals =
        count(self, plan->max_hole_bytes, plan->group_bytes, INT64_MAX);
    const int64_t mean = totals.bytes_read / totals.groups + 1;
    const int64_t depth = greatest(BYTES_IN_FLIGHT / mean, LEAST_DEPTH);
    plan->queue_depth = (int32_t)least(depth, self->queue_depth);
    if (plan->queue_depth * totals.longest_merged_bytes > memory_bound(self))
        bound_queue(self, plan, plan->group_bytes, plan->queue_depth);
}

/* A start-up saved, less what it costs that a run goes through a buffer instead of to its place. */
static int64_t hole_worth_queued(const planner *self)
{
    const sds_io_parameters *costs = self->parameters;
    const double run_bytes = (double)self->bytes_useful / (double)self->n_pieces;
    const double saved_s = queued_startup_s(self, self->queue_depth) -
                           run_bytes * costs->cached_copy_s_per_byte - costs->pick_s;
    return saved_s > 0 ? hole_worth(saved_s, costs->buffered_s_per_byte) : SDS__JOIN_TOUCHING;
}

/* The bounds of an executor under the strategy "auto". */
static void choose_bounds(const planner *self, sds_read_plan *plan)
{
    const sds_io_parameters *costs = self->parameters;
    const int64_t streamed = hole_worth(startup_s(self), streamed_s_per_byte(self));
    switch (plan->executor) {
    case SDS_EXECUTOR_SIEVE:
        plan->max_hole_bytes =
            is_warm(self) ? hole_worth(costs->call_s, costs->cached_copy_s_per_byte) : streamed;
        bound_requests(self, plan, is_warm(self) ? WARM_SIEVE_BYTES : COLD_SIEVE_BYTES);
        break;
    case SDS_EXECUTOR_VECTOR:
        plan->max_hole_bytes =
            is_warm(self) ? hole_worth(costs->call_s, costs->hole_s_per_byte) : streamed;
        plan->group_bytes = VECTOR_BYTES;
        break;
    case SDS_EXECUTOR_LIST:
        plan->group_bytes = QUEUED_BYTES;
        plan->queue_depth = self->queue_depth;
        plan->max_hole_bytes = hole_worth_queued(self);
        break;
    case SDS_EXECUTOR_DIRECT:
        bound_queue(self, plan, DIRECT_BYTES, (int32_t)least(self->queue_depth, DIRECT_DEPTH));
        plan->max_hole_bytes =
            hole_worth(queued_startup_s(self, plan->queue_depth), costs->direct_s_per_byte);
        break;
    case SDS_EXECUTOR_MAPPED:
        plan->max_hole_bytes = SDS__JOIN_ALL;
        plan->group_bytes = INT64_MAX;
        break;
    default:
        plan->max_hole_bytes = self->access->runs != NULL ? SDS__JOIN_TOUCHING : SDS__JOIN_NOTHING;
        plan->group_bytes = SDS__MAX_CALL_BYTES;
    }
    /* A hole longer than a request is never read. */
    if (plan->group_bytes < plan->max_hole_bytes) plan->max_hole_bytes = plan->group_bytes;
}

static sds_read_plan begin(const planner *self, sds_strategy strategy, sds_executor executor)
{
    const sds_read_plan plan = {
        .strategy = strategy,
        .executor = executor,
        .cache = self->cache,
        .runs = self->runs,
        .bytes_useful = self->bytes_useful,
        .queue_depth = 1,
        .regions_per_request = self->regions_per_request,
    };
    return plan;
}

/* Fill in what follows from the bounds. */
static void finish(const planner *self, sds_read_plan *plan)
{
    const sds__group_totals totals =
        count(self, plan->max_hole_bytes, plan->group_bytes, sds__group_pieces(plan));
    const int is_mapped = plan->executor == SDS_EXECUTOR_MAPPED;
    plan->requests = is_mapped ? 0 : totals.groups;
    plan->bytes_read = is_mapped ? self->bytes_useful : totals.bytes_read;
    plan->memory_bytes = memory_of(plan, &totals);
    plan->predicted_s = predict_s(self, plan, &totals);
}

static void plan_by(const planner *self, sds_executor executor, sds_read_plan *out)
{
    *out = begin(self, SDS_STRATEGY_AUTO, executor);
    choose_bounds(self, out);
    if (executor == SDS_EXECUTOR_LIST) fit_queue(self, out);
    finish(self, out);
}

/* What is read past the page cache leaves nothing there for the next read: worth it where the
 * cache could not keep it, or where much is read and most of it is wanted. */
static int is_beyond_cache(const planner *self, const sds_read_plan *plan)
{
    return self->given->cache_room_bytes > 0 && plan->bytes_read > self->given->cache_room_bytes;
}

static int is_worth_direct(const planner *self, const sds_read_plan *plan)
{
    return is_beyond_cache(self, plan) || (plan->bytes_read >= self->parameters->direct_min_bytes &&
                                           plan->bytes_read / 2 <= plan->bytes_useful);
}

/* A plan that would drive everything else out of the cache has to be faster by this. */
#define EVICTION_ADVANTAGE 1.25

static int is_better(const planner *self, const sds_read_plan *plan, const sds_read_plan *than)
{
    if (plan->executor != SDS_EXECUTOR_DIRECT) return plan->predicted_s < than->predicted_s;
    if (!is_worth_direct(self, plan)) return 0;
    const double advantage = is_beyond_cache(self, plan) ? EVICTION_ADVANTAGE : 1;
    return plan->predicted_s < advantage * than->predicted_s;
}

static int is_possible(const planner *self, sds_executor executor)
{
    switch (executor) {
    case SDS_EXECUTOR_MAPPED:
        return is_warm(self) && self->given->may_map;
    case SDS_EXECUTOR_LIST:
        return !is_warm(self) && self->given->may_queue;
    case SDS_EXECUTOR_DIRECT:
        return !is_warm(self) && self->given->may_read_directly;
    default:
        return 1;
    }
}

static void plan_best(const planner *self, sds_read_plan *out)
{
    static const sds_executor others[] = {SDS_EXECUTOR_SIEVE, SDS_EXECUTOR_VECTOR,
                                          SDS_EXECUTOR_MAPPED, SDS_EXECUTOR_LIST,
                                          SDS_EXECUTOR_DIRECT};
    plan_by(self, SDS_EXECUTOR_PREAD, out);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        sds_read_plan other;
        if (!is_possible(self, others[i])) continue;
        plan_by(self, others[i], &other);
        if (is_better(self, &other, out)) *out = other;
    }
}

/* Of a list, the ways are compared by the census, and the one that is taken is counted. */
static void plan_auto(planner *self, sds_read_plan *out)
{
    census holes = {0};
    if (self->access->runs != NULL) {
        plan_best(self, out);
        return;
    }
    static const int64_t always[] = {SDS__JOIN_TOUCHING, STREAM_HOLE_BYTES, LINE_BYTES - 1,
                                     PAGE_BYTES - 1,     FAULT_BYTES - 1,   TABLE_BYTES - 1};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        add_bound(&holes, always[i]);
    for (sds_executor executor = SDS_EXECUTOR_SIEVE; executor <= SDS_EXECUTOR_DIRECT; executor++)
        if (executor != SDS_EXECUTOR_MAPPED) {
            sds_read_plan bounds = begin(self, SDS_STRATEGY_AUTO, executor);
            choose_bounds(self, &bounds);
            add_bound(&holes, bounds.max_hole_bytes);
            if (executor == SDS_EXECUTOR_SIEVE)
                add_bound(&holes, greatest(bounds.max_hole_bytes, STREAM_HOLE_BYTES));
        }
    take_census(self->access, &holes);
    self->holes = &holes;
    plan_best(self, out);
    const double compared_s = out->predicted_s;
    self->holes = NULL;
    finish(self, out);
    if (out->executor == SDS_EXECUTOR_MAPPED) out->predicted_s = compared_s;
}

static void plan_named(const planner *self, sds_strategy strategy, sds_read_plan *out)
{
    const int is_list = self->access->runs == NULL;
    switch (strategy) {
    case SDS_STRATEGY_SIEVE:
        *out = begin(self, strategy, SDS_EXECUTOR_SIEVE);
        out->max_hole_bytes = SDS__JOIN_ALL;
        out->group_bytes = self->sieve_buffer_bytes;
        break;
    case SDS_STRATEGY_LIST:
        *out = begin(self, strategy, SDS_EXECUTOR_LIST);
        if (is_list)
            bound_queue(self, out, LIST_REGION_BYTES, self->queue_depth);
        else
            out->queue_depth = self->queue_depth;
        if (!is_list) out->group_bytes = SDS__MAX_CALL_BYTES;
        out->max_hole_bytes = SDS__JOIN_TOUCHING;
        break;
    case SDS_STRATEGY_PMD:
        *out = begin(self, strategy, SDS_EXECUTOR_SIEVE);
        out->max_hole_bytes = sds_pmd_max_hole(&self->parameters->reads, self->parameters->clients,
                                               self->parameters->nodes);
        out->group_bytes = self->sieve_buffer_bytes;
        break;
    default:
        *out = begin(self, strategy, SDS_EXECUTOR_PREAD);
        out->max_hole_bytes = is_list ? SDS__JOIN_NOTHING : SDS__JOIN_TOUCHING;
        out->group_bytes = SDS__MAX_CALL_BYTES;
    }
    finish(self, out);
    if (strategy == SDS_STRATEGY_LIST)
        out->requests = sds__divide_up(out->requests, self->regions_per_request);
}

static sds_status check_options(const sds_read_options *options)
{
    const int is_known =
        options->strategy >= SDS_STRATEGY_AUTO && options->strategy <= SDS_STRATEGY_PMD &&
        options->executor >= SDS_EXECUTOR_ANY && options->executor <= SDS_EXECUTOR_DIRECT &&
        options->cache >= SDS_CACHE_UNKNOWN && options->cache <= SDS_CACHE_COLD;
    return is_known && options->queue_depth >= 0 && options->regions_per_request >= 0 &&
                   options->sieve_buffer_bytes >= 0 && options->max_memory_bytes >= 0
               ? SDS_OK
               : SDS_EINVAL;
}

static int64_t bytes_of(const sds__access *access)
{
    int64_t bytes = 0;
    if (access->runs != NULL) return sds_runs_bytes(access->runs);
    for (size_t i = 0; i < access->n; i++)
        bytes += access->pieces[i].length;
    return bytes;
}

sds_status sds__plan_access(const sds__access *access, const sds_io_parameters *parameters,
                            const sds_read_options *options, const sds_plan_given *given,
                            sds_read_plan *out)
{
    static const sds_read_options no_options = {0};
    static const sds_plan_given nothing_given = {0};
    sds_io_parameters builtin;
    if (options == NULL) options = &no_options;
    if (given == NULL) given = &nothing_given;
    if (parameters == NULL) sds_io_parameters_builtin(&builtin);
    if (parameters == NULL) parameters = &builtin;
    const sds_status status = check_options(options);
    if (status != SDS_OK) return status;
    if (!sds_io_parameters_are_valid(parameters)) return SDS_EINVAL;

    planner self = {
        .access = access,
        .parameters = parameters,
        .given = given,
        .cache = options->cache != SDS_CACHE_UNKNOWN ? options->cache : given->cache,
        .queue_depth = options->queue_depth > 0 ? options->queue_depth : parameters->queue_depth,
        .regions_per_request = options->regions_per_request > 0 ? options->regions_per_request
                                                                : SDS_REGIONS_PER_REQUEST,
        .sieve_buffer_bytes =
            options->sieve_buffer_bytes > 0 ? options->sieve_buffer_bytes : SDS_SIEVE_BUFFER_BYTES,
        .max_memory_bytes = options->max_memory_bytes,
        .n_pieces = sds__access_pieces(access),
        .bytes_useful = bytes_of(access),
    };
    self.runs = access->runs != NULL ? sds_runs_count(access->runs) : self.n_pieces;
    if (self.n_pieces == 0) {
        *out = begin(&self, options->strategy, SDS_EXECUTOR_PREAD);
        out->max_hole_bytes = SDS__JOIN_TOUCHING;
        out->group_bytes = SDS__MAX_CALL_BYTES;
    } else if (options->strategy == SDS_STRATEGY_AUTO && options->executor != SDS_EXECUTOR_ANY) {
        plan_by(&self, options->executor, out);
    } else if (options->strategy == SDS_STRATEGY_AUTO) {
        plan_auto(&self, out);
    } else {
        plan_named(&self, options->strategy, out);
    }
    return SDS_OK;
}

sds_status sds_plan_runs(const sds_runs *runs, const sds_io_parameters *parameters,
                         const sds_read_options *options, const sds_plan_given *given,
                         sds_read_plan *out)
{
    const sds__access access = {.runs = runs};
    const sds_status status = sds__access_check(&access);
    return status == SDS_OK ? sds__plan_access(&access, parameters, options, given, out) : status;
}

sds_status sds_plan_pieces(size_t n, const sds_piece pieces[], const sds_io_parameters *parameters,
                           const sds_read_options *options, const sds_plan_given *given,
                           sds_read_plan *out)
{
    const sds__access access = {.n = n, .pieces = pieces};
    const sds_status status = sds__access_check(&access);
    return status == SDS_OK ? sds__plan_access(&access, parameters, options, given, out) : status;
}

const char *sds_strategy_name(sds_strategy strategy)
{
    static const char *const names[] = {"auto", "multiple", "sieve", "list", "pmd"};
    return strategy >= SDS_STRATEGY_AUTO && strategy <= SDS_STRATEGY_PMD ? names[strategy] : NULL;
}

const char *sds_executor_name(sds_executor executor)
{
    static const char *const names[] = {"any",    "pread", "sieve", "vector",
                                        "mapped", "list",  "direct"};
    return executor >= SDS_EXECUTOR_ANY && executor <= SDS_EXECUTOR_DIRECT ? names[executor] : NULL;
}

const char *sds_cache_name(sds_cache cache)
{
    static const char *const names[] = {"unknown", "warm", "cold"};
    return cache >= SDS_CACHE_UNKNOWN && cache <= SDS_CACHE_COLD ? names[cache] : NULL;
}
