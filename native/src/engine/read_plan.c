/* Counts what every way to read would do, predicts how long it would take, and takes the least. */
#include "sds/read_plan.h"

#include "arithmetic.h"
#include "planner.h"
#include "read_cost.h"
#include "read_shape.h"

#define KIB INT64_C(1024)
#define MIB (INT64_C(1) << 20)

/* Bounds of one request, by executor. The small sieve stays in a second-level cache. A cold stream
 * is read by the kernel, ahead of requests that are shorter still: it begins with a few times as
 * much as the first asks for, and what it waits for there nobody works on. Those in flight are
 * many. */
#define SIEVE_BYTES (256 * KIB)
#define WARM_VECTOR_BYTES (8 * MIB)
#define COLD_STREAM_BYTES (64 * KIB)
#define QUEUED_BYTES MIB
#define DIRECT_BYTES (512 * KIB)
#define DIRECT_DEPTH 16
/* Runs of which few are near enough to be read together are shorter requests: this many more of
 * them. */
#define DIRECT_RUN_BYTES (16 * KIB)
#define DIRECT_BYTES_IN_FLIGHT (4 * MIB)
/* Requests in flight beyond these bytes make no device faster; fewer than these, many slower. */
#define BYTES_IN_FLIGHT (8 * MIB)
#define LEAST_DEPTH 8
#define MAX_DEPTH 1024
#define LEAST_QUEUED_BYTES (64 * KIB)
#define LIST_REGION_BYTES MIB /* of pieces that touch but go to several places */
#define LIST_DEPTH 128        /* more would cut regions shorter, to share the buffers */

/* Longer runs are copied as fast by a call, which no file that shrinks interrupts. */
#define MAPPED_RUN_BYTES (256 * KIB)

#define IO_VECTOR_BYTES 16 /* one struct iovec */

typedef struct {
    sds__read_shape shape;
    const sds_io_parameters *costs;
    const sds_plan_given *given;
    sds_cache cache;
    int32_t queue_depth;
    int32_t regions_per_request;
    int64_t sieve_buffer_bytes;
    int64_t max_memory_bytes;
    int32_t only_cached;
} planner;

static int is_warm(const planner *self)
{
    return self->cache == SDS_CACHE_WARM;
}

/* The largest hole that is cheaper to read than another request. */
static int64_t hole_worth(double request_s, double s_per_byte)
{
    const double hole = s_per_byte > 0 ? request_s / s_per_byte : 0x1p62;
    return hole < 0x1p62 ? (int64_t)hole : INT64_MAX;
}

static int64_t memory_of(const sds_read_plan *plan, const sds__group_totals *totals)
{
    const int64_t in_flight = sds__least(plan->queue_depth, totals->groups);
    switch (plan->executor) {
    case SDS_EXECUTOR_SIEVE:
        return totals->longest_merged_bytes;
    case SDS_EXECUTOR_VECTOR:
        if (totals->longest_merged_bytes == 0) return 0;
        return sds__least(plan->max_hole_bytes, totals->longest_merged_bytes) +
               2 * SDS__VECTOR_PIECES * IO_VECTOR_BYTES;
    case SDS_EXECUTOR_LIST:
        return in_flight * totals->longest_merged_bytes;
    case SDS_EXECUTOR_DIRECT:
        return sds__huge_bytes(in_flight * (totals->longest_bytes + 2 * SDS__DIRECT_ALIGNMENT));
    default:
        return 0;
    }
}

/* What buffers may take: of all that is asked for, or what is left of one sieve buffer. With the
 * output that is at most the larger of twice the output and one sieve buffer. */
static int64_t memory_bound(const planner *self)
{
    if (self->max_memory_bytes > 0) return self->max_memory_bytes;
    return sds__greatest(self->shape.bytes_useful,
                         self->sieve_buffer_bytes - self->shape.bytes_useful);
}

static void bound_requests(const planner *self, sds_read_plan *plan, int64_t group_bytes)
{
    plan->group_bytes = sds__greatest(sds__least(group_bytes, memory_bound(self)), 1);
}

/* What buffers past the page cache may take before they are made whole pages. */
static int64_t direct_bound(const planner *self)
{
    const int64_t most = memory_bound(self);
    return most < SDS__HUGE_PAGE_BYTES ? sds__least(most, SDS__LEAST_HUGE_BYTES - 1)
                                       : most - most % SDS__HUGE_PAGE_BYTES;
}

/* Bound requests that all go through buffers. */
static void bound_queue(const planner *self, sds_read_plan *plan, int64_t group_bytes,
                        int32_t depth)
{
    const int is_direct = plan->executor == SDS_EXECUTOR_DIRECT;
    const int64_t bound = is_direct ? direct_bound(self) : memory_bound(self);
    const int64_t around = is_direct ? 2 * SDS__DIRECT_ALIGNMENT : 0;
    plan->group_bytes =
        sds__least(group_bytes, sds__greatest(bound / depth - around, LEAST_QUEUED_BYTES));
    plan->queue_depth =
        (int32_t)sds__greatest(sds__least(depth, bound / (plan->group_bytes + around)), 1);
    if (plan->queue_depth == 1)
        plan->group_bytes = sds__greatest(sds__least(plan->group_bytes, bound - around), 1);
}

/* Many short requests in flight, or few long ones; and shorter ones where their buffers would
 * take too much. */
static void fit_queue(const planner *self, sds_read_plan *plan)
{
    const sds__group_totals totals =
        sds__count(&self->shape, plan->max_hole_bytes, plan->group_bytes, INT64_MAX);
    const int64_t mean = totals.bytes_read / totals.groups + 1;
    const int64_t depth = sds__greatest(BYTES_IN_FLIGHT / mean, LEAST_DEPTH);
    plan->queue_depth = (int32_t)sds__least(depth, self->queue_depth);
    if (plan->queue_depth * totals.longest_merged_bytes > memory_bound(self))
        bound_queue(self, plan, plan->group_bytes, plan->queue_depth);
}

/* A start-up saved, less what it costs that a run goes through a buffer instead of to its place. */
static int64_t hole_worth_queued(const planner *self)
{
    const sds_io_parameters *costs = self->costs;
    const double merged_s_per_byte = sds__merged_s_per_byte(costs);
    const double detour_s_per_byte =
        costs->cached_copy_s_per_byte + merged_s_per_byte - costs->buffered_s_per_byte;
    const double run_bytes = (double)self->shape.bytes_useful / (double)self->shape.n_pieces;
    const double saved_s = sds__queued_startup_s(costs, self->queue_depth) -
                           run_bytes * detour_s_per_byte - costs->pick_s;
    return saved_s > 0 ? hole_worth(saved_s, merged_s_per_byte) : SDS__JOIN_TOUCHING;
}

/* As many requests as keep a device busy that takes short ones. */
static int32_t direct_depth(const planner *self)
{
    const int64_t run_bytes = self->shape.bytes_useful / self->shape.n_pieces;
    const int64_t depth = run_bytes < DIRECT_RUN_BYTES
                              ? DIRECT_DEPTH
                              : sds__greatest(DIRECT_BYTES_IN_FLIGHT / run_bytes, DIRECT_DEPTH);
    return (int32_t)sds__least(depth, self->queue_depth);
}

/* Where no request is as long as it may be, buffers hold more of them. */
static void deepen_direct(const planner *self, sds_read_plan *plan)
{
    const sds__group_totals totals =
        sds__count(&self->shape, plan->max_hole_bytes, plan->group_bytes, INT64_MAX);
    const int64_t room = direct_bound(self) / (totals.longest_bytes + 2 * SDS__DIRECT_ALIGNMENT);
    plan->queue_depth =
        (int32_t)sds__greatest(plan->queue_depth, sds__least(direct_depth(self), room));
}

/* The bounds of an executor under the strategy "auto". */
static void choose_bounds(const planner *self, sds_read_plan *plan)
{
    const sds_io_parameters *costs = self->costs;
    const int64_t streamed =
        hole_worth(sds__startup_s(self->costs), sds__streamed_s_per_byte(self->costs));
    switch (plan->executor) {
    case SDS_EXECUTOR_SIEVE:
        plan->max_hole_bytes =
            is_warm(self) ? hole_worth(costs->call_s, costs->cached_copy_s_per_byte) : streamed;
        bound_requests(self, plan, is_warm(self) ? SIEVE_BYTES : COLD_STREAM_BYTES);
        break;
    case SDS_EXECUTOR_VECTOR:
        plan->max_hole_bytes =
            is_warm(self) ? hole_worth(costs->call_s, costs->hole_s_per_byte) : streamed;
        plan->group_bytes = is_warm(self) ? WARM_VECTOR_BYTES : COLD_STREAM_BYTES;
        break;
    case SDS_EXECUTOR_LIST:
        plan->group_bytes = QUEUED_BYTES;
        plan->queue_depth = self->queue_depth;
        plan->max_hole_bytes = hole_worth_queued(self);
        break;
    case SDS_EXECUTOR_DIRECT:
        bound_queue(self, plan, DIRECT_BYTES, direct_depth(self));
        plan->max_hole_bytes = hole_worth(sds__queued_startup_s(self->costs, plan->queue_depth),
                                          costs->direct_s_per_byte);
        break;
    case SDS_EXECUTOR_MAPPED:
        plan->max_hole_bytes = SDS__JOIN_ALL;
        plan->group_bytes = INT64_MAX;
        break;
    default:
        plan->max_hole_bytes =
            self->shape.access->runs != NULL ? SDS__JOIN_TOUCHING : SDS__JOIN_NOTHING;
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
        .runs = self->shape.runs,
        .bytes_useful = self->shape.bytes_useful,
        .queue_depth = 1,
        .regions_per_request = self->regions_per_request,
        .max_memory_bytes = self->max_memory_bytes,
        .only_cached = self->only_cached,
    };
    return plan;
}

/* Fill in what follows from the bounds. */
static void finish(const planner *self, sds_read_plan *plan)
{
    const sds__group_totals totals =
        sds__count(&self->shape, plan->max_hole_bytes, plan->group_bytes, sds__group_pieces(plan));
    const int is_mapped = plan->executor == SDS_EXECUTOR_MAPPED;
    plan->requests = is_mapped ? 0 : totals.groups;
    plan->bytes_read = is_mapped ? self->shape.bytes_useful : totals.bytes_read;
    plan->memory_bytes = memory_of(plan, &totals);
    plan->predicted_s =
        sds__predict_s(&self->shape, self->costs, self->given->is_mapped, plan, &totals);
}

static void plan_by(const planner *self, sds_executor executor, sds_read_plan *out)
{
    *out = begin(self, SDS_STRATEGY_AUTO, executor);
    choose_bounds(self, out);
    if (executor == SDS_EXECUTOR_LIST) fit_queue(self, out);
    if (executor == SDS_EXECUTOR_DIRECT) deepen_direct(self, out);
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
    return is_beyond_cache(self, plan) || (plan->bytes_read >= self->costs->direct_min_bytes &&
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
        return is_warm(self) && self->given->may_map &&
               self->shape.bytes_useful / self->shape.n_pieces <= MAPPED_RUN_BYTES;
    case SDS_EXECUTOR_LIST:
        return !is_warm(self) && self->given->may_queue;
    case SDS_EXECUTOR_DIRECT:
        return !is_warm(self) && self->given->may_read_directly;
    default:
        return 1;
    }
}

static void take_better(const planner *self, const sds_read_plan *other, sds_read_plan *best)
{
    if (other->memory_bytes <= memory_bound(self) && is_better(self, other, best)) *best = *other;
}

/* A few small holes make every run take the way through a buffer: also consider reading none. */
static void plan_queue_in_place(const planner *self, sds_read_plan *out)
{
    *out = begin(self, SDS_STRATEGY_AUTO, SDS_EXECUTOR_LIST);
    choose_bounds(self, out);
    out->max_hole_bytes = SDS__JOIN_TOUCHING;
    fit_queue(self, out);
    finish(self, out);
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
        take_better(self, &other, out);
        if (others[i] != SDS_EXECUTOR_LIST || other.max_hole_bytes <= SDS__JOIN_TOUCHING) continue;
        plan_queue_in_place(self, &other);
        take_better(self, &other, out);
    }
}

/* Of a list, the ways are compared by the census, and the one that is taken is counted. */
static void plan_auto(planner *self, sds_read_plan *out)
{
    if (self->shape.access->runs != NULL) {
        plan_best(self, out);
        return;
    }
    sds__hole_census census = {0};
    sds__add_cost_bounds(&census);
    for (sds_executor executor = SDS_EXECUTOR_PREAD; executor <= SDS_EXECUTOR_DIRECT; executor++) {
        sds_read_plan bounds = begin(self, SDS_STRATEGY_AUTO, executor);
        choose_bounds(self, &bounds);
        sds__census_add_bound(&census, bounds.max_hole_bytes);
    }
    sds__census_take(&census, self->shape.access);
    self->shape.census = &census;
    plan_best(self, out);
    const double compared_s = out->predicted_s;
    self->shape.census = NULL;
    finish(self, out);
    if (out->executor == SDS_EXECUTOR_MAPPED) out->predicted_s = compared_s;
}

static void plan_named(const planner *self, sds_strategy strategy, sds_read_plan *out)
{
    const int is_list = self->shape.access->runs == NULL;
    switch (strategy) {
    case SDS_STRATEGY_SIEVE:
        *out = begin(self, strategy, SDS_EXECUTOR_SIEVE);
        out->max_hole_bytes = SDS__JOIN_ALL;
        out->group_bytes = self->sieve_buffer_bytes;
        break;
    case SDS_STRATEGY_LIST:
        *out = begin(self, strategy, SDS_EXECUTOR_LIST);
        if (is_list)
            bound_queue(self, out, LIST_REGION_BYTES,
                        (int32_t)sds__least(self->queue_depth, LIST_DEPTH));
        else
            out->queue_depth = self->queue_depth;
        if (!is_list) out->group_bytes = SDS__MAX_CALL_BYTES;
        out->max_hole_bytes = SDS__JOIN_TOUCHING;
        break;
    case SDS_STRATEGY_PMD:
        *out = begin(self, strategy, SDS_EXECUTOR_SIEVE);
        out->max_hole_bytes =
            sds_pmd_max_hole(&self->costs->reads, self->costs->clients, self->costs->nodes);
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
        .costs = parameters,
        .given = given,
        .cache = options->cache != SDS_CACHE_UNKNOWN ? options->cache : given->cache,
        .queue_depth = (int32_t)sds__least(
            options->queue_depth > 0 ? options->queue_depth : parameters->queue_depth, MAX_DEPTH),
        .regions_per_request = options->regions_per_request > 0 ? options->regions_per_request
                                                                : SDS_REGIONS_PER_REQUEST,
        .sieve_buffer_bytes = sds__least(
            options->sieve_buffer_bytes > 0 ? options->sieve_buffer_bytes : SDS_SIEVE_BUFFER_BYTES,
            options->max_memory_bytes > 0 ? options->max_memory_bytes : INT64_MAX),
        .max_memory_bytes = options->max_memory_bytes,
        .only_cached = options->only_cached,
    };
    sds__read_shape_init(&self.shape, access);
    if (self.shape.n_pieces == 0) {
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
