#include "simulate.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"

#define MAX_PROCESSES (INT64_C(1) << 20)
#define MAX_DEPTH (INT64_C(1) << 20)

static int is_operation(const sds_simulator_operation *operation)
{
    return operation->n_processes >= 0 && operation->n_processes <= MAX_PROCESSES &&
           operation->strategy >= SDS_SIMULATE_MULTIPLE &&
           operation->strategy <= SDS_SIMULATE_LIST && operation->list_depth >= 1 &&
           operation->list_depth <= MAX_DEPTH && operation->sieve_buffer_bytes >= 1;
}

/* Runs of every process, and what they select together. */
static sds_status find_runs(const sds_simulator_operation *operation, sds_runs runs[],
                            sds_simulated *counts)
{
    for (int64_t i = 0; i < operation->n_processes; i++) {
        const sds_status status = sds_runs_of(&operation->array, &operation->slabs[i], &runs[i]);
        if (status != SDS_OK) return status;
        if (__builtin_add_overflow(counts->bytes_useful, sds_runs_bytes(&runs[i]),
                                   &counts->bytes_useful))
            return SDS_EOVERFLOW;
    }
    return SDS_OK;
}

/* Sizes are at most 2^50, and the file ends before 2^62: nothing that is computed overflows. */
static int is_small_enough(const sds_simulator_operation *operation)
{
    const sds_array *array = &operation->array;
    int64_t end = array->element_bytes;
    for (int32_t axis = 0; axis < array->rank; axis++)
        if (__builtin_mul_overflow(end, array->extent[axis], &end)) return 0;
    return end < INT64_C(1) << 61 && array->offset_bytes < INT64_C(1) << 61;
}

static void report_busy(const sds__simulation *simulation, int64_t link_busy_ns[],
                        int64_t disk_busy_ns[])
{
    const sds__engine *engine = &simulation->engine;
    const size_t n_disks = (size_t)simulation->machine.n_disks;
    for (size_t o = 0; o < engine->n_osts; o++) {
        int64_t busiest = 0;
        for (size_t i = 0; i < n_disks; i++)
            busiest = sds__greatest(busiest, engine->disk[o * n_disks + i].busy_ns);
        if (link_busy_ns != NULL) link_busy_ns[o] = engine->ost[o].link_busy_ns;
        if (disk_busy_ns != NULL) disk_busy_ns[o] = busiest;
    }
}

static sds_status simulate(sds__simulation *simulation, sds_runs runs[], int64_t link_busy_ns[],
                           int64_t disk_busy_ns[])
{
    const sds_simulator_operation *operation = simulation->operation;
    sds_status status = find_runs(operation, runs, simulation->counts);
    if (status != SDS_OK || simulation->counts->bytes_useful == 0) return status;
    if (!is_small_enough(operation)) return SDS_ELIMIT;
    simulation->runs = runs;
    status = operation->is_collective ? sds__simulate_collective(simulation)
                                      : sds__simulate_independent(simulation);
    if (status == SDS_OK && simulation->counts->elapsed_ns >= SDS_SIMULATOR_MAX_NS)
        status = SDS_ELIMIT;
    if (status == SDS_OK) report_busy(simulation, link_busy_ns, disk_busy_ns);
    if (simulation->engine.machine != NULL) sds__engine_free(&simulation->engine);
    return status;
}

sds_status sds_simulate(const sds_simulator_operation *operation,
                        const sds_simulator_parameters *parameters, sds_simulated *out,
                        int64_t link_busy_ns[], int64_t disk_busy_ns[])
{
    sds__simulation simulation = {.operation = operation, .counts = out};
    memset(out, 0, sizeof *out);
    if (!is_operation(operation)) return SDS_EINVAL;
    sds_status status =
        sds__machine_of(parameters, operation->is_request_by_request, &simulation.machine);
    if (status != SDS_OK) return status;
    const size_t n_osts = (size_t)parameters->striping.stripe_count;
    if (link_busy_ns != NULL) memset(link_busy_ns, 0, n_osts * sizeof *link_busy_ns);
    if (disk_busy_ns != NULL) memset(disk_busy_ns, 0, n_osts * sizeof *disk_busy_ns);
    if (operation->n_processes == 0) return SDS_OK;
    sds_runs *runs = malloc((size_t)operation->n_processes * sizeof *runs);
    if (runs == NULL) return SDS_ENOMEM;
    status = simulate(&simulation, runs, link_busy_ns, disk_busy_ns);
    free(runs);
    return status;
}
