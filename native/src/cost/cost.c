/* Predicted time of one operation. */
#include "sds/cost.h"

#include "read_cost.h"

#include <math.h>
#include <string.h>

/* Any read through HDF5 takes that at least, once everything is cached. */
#define BUILTIN_READ_S 10e-6
/* Runs within one page are no requests of their own: the sieve read of the first brings it all. */
#define BUILTIN_PAGE_BYTES 4096

void sds_cost_builtin(sds_cost_model *out)
{
    memset(out, 0, sizeof *out);
    out->kind = SDS_MODEL_BUILTIN;
    out->gap = SDS_GAP_COUNT;
    out->n_terms = 3;
    sds_io_parameters costs;
    sds_io_parameters_builtin(&costs);
    out->coefficient[0] = BUILTIN_READ_S;
    out->coefficient[1] = sds__startup_s(&costs);
    out->coefficient[2] = sds__merged_s_per_byte(&costs);
    out->floor_s = BUILTIN_READ_S;
}

int32_t sds_model_terms(int32_t kind)
{
    switch (kind) {
    case SDS_MODEL_BUILTIN:
    case SDS_MODEL_EQ3:
        return 3;
    case SDS_MODEL_EQ4:
        return 4;
    case SDS_MODEL_EQ5:
    case SDS_MODEL_EQ6:
    case SDS_MODEL_SIEVE:
        return 8;
    case SDS_MODEL_SERVICE:
        return 7;
    default:
        return 0;
    }
}

double sds_cost_start(const sds_cost_model *model)
{
    switch (model->kind) {
    case SDS_MODEL_BUILTIN:
    case SDS_MODEL_EQ3:
    case SDS_MODEL_EQ4:
    case SDS_MODEL_EQ6:
        return model->coefficient[0] > 0 ? model->coefficient[0] : 0;
    default:
        return 0;
    }
}

void sds_model_inputs_of_read(const sds_features *features, int64_t block_gap_paper,
                              double processes_per_ost, sds_model_inputs *out)
{
    const double osts = features->osts_touched.high > 0 ? (double)features->osts_touched.high : 1;
    /* Processes at each OST that this read touches: P * OSTs of the operation are all of them. */
    const double sharing = processes_per_ost * osts > 1 ? processes_per_ost * osts : 1;
    const double runs = (double)features->runs;
    const double segments = runs > 0 ? (double)features->block_gap_count.high + 1 : 0;
    const double distance = (double)features->block_gap_distance.high;
    const double bytes = (double)features->bytes_touched.high;
    /* Runs that share requests are fetched in one go. */
    const double fetches = segments * osts < runs ? segments * osts : runs;
    *out = (sds_model_inputs){
        .block_depth = (double)features->block_depth.high,
        .block_gap_count = (double)features->block_gap_count.high,
        .block_gap_distance = distance,
        .block_gap_paper = (double)block_gap_paper,
        .processes_per_ost = processes_per_ost,
        .runs_most = runs,
        .bytes_touched_most = bytes,
        .bytes_useful = (double)features->bytes_useful,
        .n_processes = sharing,
        .first_visits = runs > 0 ? 1 : 0,
        .later_fetches = fetches > 1 ? fetches - 1 : 0,
        .trips_most = fetches,
        .fetch_distance = segments > 1 ? (fetches - 1) * distance / (segments - 1) : 0,
        .step_bytes = bytes * (processes_per_ost > 1 ? processes_per_ost : 1),
        .ost_bytes = bytes / osts * sharing,
        .disk_segments = segments * sharing,
        .disk_blocks = (double)features->block_depth.high * sharing,
        .disk_distance = distance * sharing,
        .sieve_requests = (double)features->sieve.requests,
        .sieve_jumps = (double)features->sieve.jumps,
        .sieve_bytes = (double)features->sieve.bytes,
    };
    if (features->sieve.requests == 0) { /* not counted: each run is taken to be read by itself */
        out->sieve_requests = (double)features->runs;
        out->sieve_jumps = (double)features->runs;
        out->sieve_bytes = (double)features->bytes_touched.high;
    }
}

static double gap_of(int32_t gap, const sds_model_inputs *inputs)
{
    if (gap == SDS_GAP_DISTANCE) return inputs->block_gap_distance;
    if (gap == SDS_GAP_PAPER) return inputs->block_gap_paper;
    return inputs->block_gap_count;
}

static void sieve_terms(const sds_model_inputs *inputs, double terms[SDS_MODEL_TERMS])
{
    const double processes = inputs->processes_per_ost;
    terms[0] = 1;
    terms[1] = inputs->sieve_requests;
    terms[2] = inputs->sieve_jumps;
    terms[3] = inputs->sieve_bytes;
    terms[4] = inputs->runs_most;
    terms[5] = processes * inputs->sieve_requests;
    terms[6] = processes * inputs->sieve_jumps;
    terms[7] = processes * inputs->sieve_bytes;
}

static double pages_of(double bytes)
{
    const double pages = bytes / BUILTIN_PAGE_BYTES, whole = (double)(int64_t)pages;
    return whole < pages ? whole + 1 : whole;
}

int32_t sds_cost_terms(int32_t kind, int32_t gap, const sds_model_inputs *inputs,
                       double terms[SDS_MODEL_TERMS])
{
    const double depth = inputs->block_depth, gaps = gap_of(gap, inputs);
    const double processes = inputs->processes_per_ost;
    if (kind == SDS_MODEL_SIEVE) {
        sieve_terms(inputs, terms);
        return sds_model_terms(kind);
    }
    terms[0] = 1;
    if (kind == SDS_MODEL_SERVICE) {
        terms[0] = inputs->first_visits;
        terms[1] = inputs->runs_most;
        terms[2] = inputs->trips_most;
        terms[3] = inputs->step_bytes;
        terms[4] = inputs->ost_bytes;
        terms[5] = inputs->later_fetches + inputs->disk_segments;
        terms[6] = inputs->disk_blocks;
        return sds_model_terms(kind);
    }
    if (kind == SDS_MODEL_BUILTIN) {
        const double pages = pages_of(inputs->bytes_touched_most);
        terms[1] = inputs->runs_most < pages ? inputs->runs_most : pages;
        terms[2] = inputs->bytes_touched_most;
        return sds_model_terms(kind);
    }
    terms[1] = depth;
    terms[2] = gaps;
    terms[3] = processes;
    if (kind == SDS_MODEL_EQ5) {
        terms[4] = 1;
        terms[5] = inputs->n_processes;
        terms[6] = inputs->n_aggregators;
        terms[7] = inputs->n_aggregators > 0 ? inputs->bytes_useful / inputs->n_aggregators
                                             : inputs->bytes_useful;
        return sds_model_terms(kind);
    }
    terms[4] = depth * gaps;
    terms[5] = depth * processes;
    terms[6] = gaps * processes;
    terms[7] = depth * gaps * processes;
    return sds_model_terms(kind);
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Gaps are sought over or read through, whichever is quicker. */
static double service(const double c[SDS_MODEL_TERMS], const sds_model_inputs *m)
{
    return c[0] * m->first_visits + c[1] * m->runs_most + c[2] * m->trips_most +
           smaller(c[5] * m->later_fetches, c[6] * m->fetch_distance) + c[3] * m->step_bytes +
           c[4] * m->ost_bytes + c[6] * m->disk_blocks +
           smaller(c[5] * m->disk_segments, c[6] * m->disk_distance);
}

double sds_cost_of(const sds_cost_model *model, const sds_model_inputs *inputs)
{
    double seconds = 0;
    if (model->kind == SDS_MODEL_SERVICE) {
        seconds = service(model->coefficient, inputs);
    } else {
        double terms[SDS_MODEL_TERMS];
        const int32_t n = sds_cost_terms(model->kind, model->gap, inputs, terms);
        for (int32_t i = 0; i < n; i++)
            seconds += model->coefficient[i] * terms[i];
    }
    /* Not "seconds < floor": a coefficient that is no number must not win by comparing false. */
    return seconds > model->floor_s ? seconds : model->floor_s;
}

void sds_cost_of_many(const sds_cost_model *model, size_t n,
                      const double *const input[SDS_N_MODEL_INPUTS], double seconds[])
{
    for (size_t i = 0; i < n; i++) {
        sds_model_inputs one;
#define XX(name) one.name = input[sds__model_input_##name][i];
        SDS_MODEL_INPUT_MAP(XX)
#undef XX
        seconds[i] = sds_cost_of(model, &one);
    }
}

double sds_cost_predict(const sds_cost_model *model, const sds_features *features,
                        int64_t block_gap_paper, double processes_per_ost)
{
    sds_model_inputs inputs;
    sds_model_inputs_of_read(features, block_gap_paper, processes_per_ost, &inputs);
    return sds_cost_of(model, &inputs);
}
