/* Processes that ask for the same pages in the same order get them at the same time (the engine
 * sees to that), so that one of them stands for all. Where each run lies in its page decides:
 * processes whose runs are equal but for a shift within a granule, which divides the page and every
 * stride, touch the same pages with every run. */
#include "simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"

typedef struct independent_read {
    sds__simulation *simulation;
    sds__client *client;
    sds__fetcher *fetcher;
    int64_t *n_members;
    int64_t *work_ns;         /* of each client, before its next request */
    int64_t n_processors;     /* of each node; 0: one for each process */
    int64_t *processor_at_ns; /* when each will be free, node by node */
} independent_read;

/* What decides which pages a process touches. */
typedef struct track {
    const sds_runs *runs;
    int64_t low; /* of its first run, in granules */
    int64_t high;
    int64_t process;
} track;

static int compare_values(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_tracks(const track *a, const track *b)
{
    int order = compare_values(a->runs->run_bytes, b->runs->run_bytes);
    if (order == 0) order = compare_values(a->runs->n_levels, b->runs->n_levels);
    if (order == 0 && a->runs->n_levels > 0)
        order = memcmp(a->runs->level, b->runs->level,
                       (size_t)a->runs->n_levels * sizeof *a->runs->level);
    if (order == 0) order = compare_values(a->low, b->low);
    if (order == 0) order = compare_values(a->high, b->high);
    return order;
}

static int compare_places(const void *a, const void *b)
{
    const track *x = a, *y = b;
    const int order = compare_tracks(x, y);
    return order != 0 ? order : compare_values(x->process, y->process);
}

static track track_of(const sds__simulation *simulation, int64_t process)
{
    const sds_runs *runs = &simulation->runs[process];
    int64_t granule = simulation->machine.given.page_bytes;
    for (int32_t k = 0; k < runs->n_levels; k++)
        granule = sds__greatest_common_divisor(granule, runs->level[k].stride_bytes);
    /* Windows of a sieve end anywhere. */
    if (simulation->operation->strategy == SDS_SIMULATE_SIEVE) granule = 1;
    return (track){
        .runs = runs,
        .low = runs->first_offset / granule,
        .high = (runs->first_offset + runs->run_bytes - 1) / granule,
        .process = process,
    };
}

/* A step of splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t mixed(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The n-th delay of a process: exponential, the same whenever it is asked for. */
static int64_t delay_ns(const sds_simulator_parameters *given, double mean_s, int64_t process,
                        int64_t n)
{
    if (mean_s == 0) return 0;
    const uint64_t drawn =
        mixed(mixed(mixed((uint64_t)given->jitter_seed) + (uint64_t)process) + (uint64_t)n);
    const double share = ((double)(drawn >> 11) + 1) * 0x1p-53; /* in (0, 1] */
    return (int64_t)(-log(share) * mean_s * 1e9);
}

/* When a process begins. */
static int64_t begin_ns(const sds_simulator_parameters *given, const sds__client *client)
{
    return delay_ns(given, given->client_start_s, client->process, 0);
}

/* What a process did after an answer is done: it asks for what it needs next, or has ended. */
static sds_status worked(independent_read *walk, int32_t of, int64_t now_ns)
{
    const sds__client *client = &walk->client[of];
    sds_simulated *counts = walk->simulation->counts;
    if (client->n_ranges > 0) return sds__engine_send(&walk->simulation->engine, of, now_ns);
    const int64_t begun_ns = begin_ns(&walk->simulation->machine.given, client);
    counts->elapsed_ns = sds__greatest(counts->elapsed_ns, now_ns - begun_ns);
    counts->requests += walk->fetcher[of].requests * walk->n_members[of];
    return SDS_OK;
}

/* A process takes the processor of its node that is free first, for all that it has to do. */
static sds_status awake(void *context, int32_t of, int64_t now_ns)
{
    independent_read *walk = context;
    const int64_t node =
        walk->client[of].process / walk->simulation->machine.given.processes_per_node;
    int64_t *node_at_ns = &walk->processor_at_ns[node * walk->n_processors];
    int64_t *at_ns = node_at_ns;
    for (int64_t i = 1; i < walk->n_processors; i++)
        if (node_at_ns[i] < *at_ns) at_ns = &node_at_ns[i];
    *at_ns = sds__plus_ns(sds__greatest(*at_ns, now_ns), walk->work_ns[of]);
    return worked(walk, of, *at_ns);
}

static sds_status answered(void *context, int32_t of, int64_t done_ns)
{
    independent_read *walk = context;
    sds__fetcher *fetcher = &walk->fetcher[of];
    sds__client *client = &walk->client[of];
    const sds_simulator_parameters *given = &walk->simulation->machine.given;
    int64_t work_ns;
    if (sds__fetcher_next(fetcher, client->ranges, &client->n_ranges, &work_ns))
        work_ns = sds__plus_ns(work_ns, delay_ns(given, given->client_jitter_s, client->process,
                                                 ++fetcher->n_fetches));
    else if (walk->simulation->counts->events > given->max_events)
        return SDS_ELIMIT;
    if (walk->n_processors == 0 || work_ns == 0)
        return worked(walk, of, sds__plus_ns(done_ns, work_ns));
    walk->work_ns[of] = work_ns;
    return sds__engine_wake(&walk->simulation->engine, of, done_ns);
}

static sds_status run(independent_read *walk, size_t n_clients, size_t node_words)
{
    sds__simulation *simulation = walk->simulation;
    sds_status status =
        sds__engine_init(&simulation->engine, &simulation->machine, n_clients, walk->client,
                         node_words, answered, walk, simulation->counts);
    simulation->engine.awake = awake;
    for (size_t i = 0; i < n_clients && status == SDS_OK; i++)
        status = answered(walk, (int32_t)i, begin_ns(&simulation->machine.given, &walk->client[i]));
    if (status == SDS_OK) status = sds__engine_run(&simulation->engine);
    return status;
}

/* Clients from tracks in order of place: one per process, or one for all with the same track. */
static size_t form_clients(independent_read *walk, size_t n, const track tracks[],
                           size_t node_words, uint64_t nodes[], size_t depth, sds__range ranges[])
{
    const sds__simulation *simulation = walk->simulation;
    /* Where disks forget or pause, or processors are few, those who ask at the same time are
     * served one after the other. */
    const sds_simulator_parameters *given = &simulation->machine.given;
    const int may_join = !simulation->operation->is_request_by_request && !given->ost_forgets &&
                         given->disk_request_s == 0 && given->client_jitter_s == 0 &&
                         given->client_start_s == 0 && walk->n_processors == 0;
    size_t n_clients = 0;
    for (size_t i = 0, end; i < n; i = end, n_clients++) {
        sds__client *client = &walk->client[n_clients];
        uint64_t *set = &nodes[n_clients * node_words];
        *client = (sds__client){
            .ranges = &ranges[n_clients * depth], .process = tracks[i].process, .nodes = set};
        end = i + 1;
        if (may_join)
            while (end < n && compare_tracks(&tracks[i], &tracks[end]) == 0)
                end++;
        for (size_t k = i; k < end; k++) {
            const int64_t node = tracks[k].process / simulation->machine.given.processes_per_node;
            set[node / 64] |= UINT64_C(1) << (node % 64);
        }
        for (size_t w = 0; w < node_words; w++)
            client->n_nodes += __builtin_popcountll(set[w]);
        walk->n_members[n_clients] = (int64_t)(end - i);
        sds__fetcher_init(&walk->fetcher[n_clients], &simulation->machine, simulation->operation,
                          tracks[i].runs, &simulation->counts->events);
    }
    return n_clients;
}

sds_status sds__simulate_independent(sds__simulation *simulation)
{
    const sds_simulator_operation *operation = simulation->operation;
    const size_t n_processes = (size_t)operation->n_processes;
    const sds_simulator_parameters *given = &simulation->machine.given;
    const size_t n_nodes = n_processes / (size_t)given->processes_per_node + 1;
    const size_t node_words = n_nodes / 64 + 1;
    const size_t depth =
        operation->strategy == SDS_SIMULATE_LIST ? (size_t)operation->list_depth : 1;
    independent_read walk = {.simulation = simulation, .n_processors = given->processors_per_node};
    if (walk.n_processors >= given->processes_per_node ||
        walk.n_processors >= operation->n_processes)
        walk.n_processors = 0;
    track *tracks = calloc(n_processes, sizeof *tracks);
    uint64_t *nodes = calloc(n_processes, node_words * sizeof *nodes);
    sds__range *ranges = calloc(n_processes, depth * sizeof *ranges);
    walk.client = calloc(n_processes, sizeof *walk.client);
    walk.fetcher = calloc(n_processes, sizeof *walk.fetcher);
    walk.n_members = calloc(n_processes, sizeof *walk.n_members);
    walk.work_ns = calloc(n_processes, sizeof *walk.work_ns);
    walk.processor_at_ns =
        calloc(n_nodes, ((size_t)walk.n_processors + 1) * sizeof *walk.processor_at_ns);
    sds_status status = SDS_ENOMEM;
    if (tracks != NULL && nodes != NULL && ranges != NULL && walk.client != NULL &&
        walk.fetcher != NULL && walk.n_members != NULL && walk.work_ns != NULL &&
        walk.processor_at_ns != NULL) {
        size_t n = 0;
        for (size_t i = 0; i < n_processes; i++)
            if (simulation->runs[i].run_bytes > 0) tracks[n++] = track_of(simulation, (int64_t)i);
        qsort(tracks, n, sizeof *tracks, compare_places);
        const size_t n_clients = form_clients(&walk, n, tracks, node_words, nodes, depth, ranges);
        simulation->counts->clients = (int64_t)n_clients;
        status = run(&walk, n_clients, node_words);
        simulation->counts->io_ns = simulation->counts->elapsed_ns;
    }
    free(tracks);
    free(nodes);
    free(ranges);
    free(walk.client);
    free(walk.fetcher);
    free(walk.n_members);
    free(walk.work_ns);
    free(walk.processor_at_ns);
    return status;
}
