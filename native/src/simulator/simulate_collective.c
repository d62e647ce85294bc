/* Two-phase reads, as ROMIO does them: the file between the first byte wanted by any process and
 * the last is dealt to aggregators in equal domains, cut where stripes begin. Each reads its domain
 * a buffer at a time, from the first byte wanted in it to the last, holes included, and hands out
 * what is wanted; all of them keep step. */
#include "simulate.h"

#include <stdlib.h>

#include "arithmetic.h"

typedef struct file_domain {
    int64_t low; /* first byte wanted in it, and the end of the last; equal: nothing */
    int64_t high;
} file_domain;

/* What all processes want of a part of the file. */
typedef struct demand {
    int64_t low;
    int64_t high; /* equal: nothing */
    int64_t n_bytes;
    int64_t n_processes;
} demand;

typedef struct two_phases {
    sds__simulation *simulation;
    size_t n_aggregators;
    sds__ranked *ranked; /* of each process */
    sds__client *client;
    sds__range *range;
    file_domain *domain;
    uint64_t *nodes;
    int64_t read_ns; /* when the last aggregator has its buffer full */
} two_phases;

/* Looks at every process, one event each. */
static demand demand_in(const two_phases *phases, int64_t low, int64_t high)
{
    demand found = {.low = INT64_MAX, .high = -1};
    const int64_t n_processes = phases->simulation->operation->n_processes;
    phases->simulation->counts->events += n_processes;
    for (int64_t i = 0; i < n_processes; i++) {
        const sds__ranked *ranked = &phases->ranked[i];
        if (ranked->n_bytes == 0) continue;
        const int64_t first = sds__bytes_below(ranked, low);
        const int64_t last = sds__bytes_below(ranked, high);
        if (first == last) continue;
        found.low = sds__least(found.low, sds__offset_of(ranked, first));
        found.high = sds__greatest(found.high, sds__offset_of(ranked, last - 1) + 1);
        found.n_bytes += last - first;
        found.n_processes++;
    }
    if (found.high < 0) found.low = found.high = low;
    return found;
}

static sds_status answered(void *context, int32_t of, int64_t done_ns)
{
    two_phases *phases = context;
    (void)of;
    phases->read_ns = sds__greatest(phases->read_ns, done_ns);
    return SDS_OK;
}

static int has_too_many_events(const two_phases *phases)
{
    const sds__simulation *simulation = phases->simulation;
    return simulation->counts->events > simulation->machine.given.max_events;
}

/* Give every aggregator its domain; *most_buffers: that one of them needs. */
static sds_status deal_domains(two_phases *phases, int64_t *most_buffers)
{
    const sds_simulator_parameters *given = &phases->simulation->machine.given;
    const int64_t stripe = given->striping.stripe_bytes;
    const int64_t buffer = given->collective_buffer_bytes;
    const demand all = demand_in(phases, 0, INT64_MAX);
    const int64_t start = all.low / stripe * stripe;
    const int64_t stripes = sds__divide_up(all.high - start, stripe);
    const int64_t each = sds__divide_up(stripes, (int64_t)phases->n_aggregators) * stripe;
    int64_t n_buffers = 0;
    for (size_t a = 0; a < phases->n_aggregators; a++) {
        if (has_too_many_events(phases)) return SDS_ELIMIT;
        demand in = {0};
        int64_t low, high;
        if (!__builtin_mul_overflow((int64_t)a, each, &low) &&
            !__builtin_add_overflow(low, start, &low) && low < all.high) {
            high = all.high - low < each ? all.high : low + each;
            in = demand_in(phases, low, high);
        }
        phases->domain[a] = (file_domain){in.low, in.high};
        n_buffers = sds__greatest(n_buffers, sds__divide_up(in.high - in.low, buffer));
    }
    *most_buffers = n_buffers;
    return has_too_many_events(phases) ? SDS_ELIMIT : SDS_OK;
}

/* Every aggregator fills its buffer and hands out what it holds, from start_ns on. */
static sds_status iterate(two_phases *phases, int64_t iteration, int64_t start_ns,
                          int64_t *shuffle_ns)
{
    sds__simulation *simulation = phases->simulation;
    const sds__machine *machine = &simulation->machine;
    const int64_t buffer = machine->given.collective_buffer_bytes;
    const int64_t page = machine->given.page_bytes;
    sds_status status = SDS_OK;
    phases->read_ns = start_ns;
    *shuffle_ns = 0;
    for (size_t a = 0; a < phases->n_aggregators && status == SDS_OK; a++) {
        const file_domain *domain = &phases->domain[a];
        if (sds__divide_up(domain->high - domain->low, buffer) <= iteration) continue;
        if (has_too_many_events(phases)) return SDS_ELIMIT;
        const int64_t low = domain->low + iteration * buffer;
        const demand in = demand_in(phases, low, sds__least(domain->high - low, buffer) + low);
        if (in.low == in.high) continue;
        const int64_t handing =
            sds__plus_ns(sds__times_ns(in.n_processes, machine->shuffle_message_ns),
                         sds__transfer_ns(machine->shuffle_pace, in.n_bytes));
        *shuffle_ns = sds__greatest(*shuffle_ns, handing);
        phases->range[a] = (sds__range){in.low / page * page, sds__divide_up(in.high, page) * page};
        simulation->counts->requests++;
        status = sds__engine_send(&simulation->engine, (int32_t)a,
                                  sds__plus_ns(start_ns, machine->client_request_ns));
    }
    return status == SDS_OK ? sds__engine_run(&simulation->engine) : status;
}

static sds_status run(two_phases *phases, size_t node_words)
{
    sds__simulation *simulation = phases->simulation;
    sds_simulated *counts = simulation->counts;
    sds_status status =
        sds__engine_init(&simulation->engine, &simulation->machine, phases->n_aggregators,
                         phases->client, node_words, answered, phases, counts);
    int64_t n_buffers = 0;
    if (status == SDS_OK) status = deal_domains(phases, &n_buffers);
    for (int64_t i = 0; i < n_buffers && status == SDS_OK; i++) {
        const int64_t start_ns = counts->elapsed_ns;
        int64_t shuffle_ns;
        status = iterate(phases, i, start_ns, &shuffle_ns);
        counts->io_ns = sds__plus_ns(counts->io_ns, phases->read_ns - start_ns);
        counts->shuffle_ns = sds__plus_ns(counts->shuffle_ns, shuffle_ns);
        counts->elapsed_ns = sds__plus_ns(phases->read_ns, shuffle_ns);
        if (counts->elapsed_ns >= SDS_SIMULATOR_MAX_NS || has_too_many_events(phases))
            status = SDS_ELIMIT;
    }
    return status;
}

sds_status sds__simulate_collective(sds__simulation *simulation)
{
    const sds_simulator_operation *operation = simulation->operation;
    const size_t n_processes = (size_t)operation->n_processes;
    const size_t n =
        (size_t)sds__least(simulation->machine.given.n_aggregators, operation->n_processes);
    const size_t node_words = n / 64 + 1;
    two_phases phases = {.simulation = simulation, .n_aggregators = n};
    phases.ranked = calloc(n_processes, sizeof *phases.ranked);
    phases.client = calloc(n, sizeof *phases.client);
    phases.range = calloc(n, sizeof *phases.range);
    phases.domain = calloc(n, sizeof *phases.domain);
    phases.nodes = calloc(n, node_words * sizeof *phases.nodes);
    sds_status status = SDS_ENOMEM;
    if (phases.ranked != NULL && phases.client != NULL && phases.range != NULL &&
        phases.domain != NULL && phases.nodes != NULL) {
        for (size_t i = 0; i < n_processes; i++)
            sds__ranked_of(&simulation->runs[i], &phases.ranked[i]);
        for (size_t a = 0; a < n; a++) { /* each on a node of its own */
            uint64_t *set = &phases.nodes[a * node_words];
            set[a / 64] = UINT64_C(1) << (a % 64);
            phases.client[a] = (sds__client){.ranges = &phases.range[a],
                                             .n_ranges = 1,
                                             .process = (int64_t)a,
                                             .nodes = set,
                                             .n_nodes = 1};
        }
        simulation->counts->clients = (int64_t)n;
        status = run(&phases, node_words);
    }
    free(phases.ranked);
    free(phases.client);
    free(phases.range);
    free(phases.domain);
    free(phases.nodes);
    return status;
}
