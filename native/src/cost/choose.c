#include "sds/choose.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "pricing.h"
#include "sds/tiles.h"
#include "sieve.h"

/* Steps for the features of one layout; past them, bounds serve. */
#define FEATURE_STEPS 2048

#define UNPREDICTABLE (-1.0)

/* Where everything lies in the processor's caches, few calls of HDF5 are hard to beat. */
#define HOT_SERVING_S 5.5e-6
/* More than that does not stay in the processor's own caches from one read to the next. */
#define MAX_HOT_BYTES (2 << 20)
/* Few files lie in the processor's caches when they are opened. */
#define PART_AT_STAKE 0.25
/* Uncertain predictions: the engine must be faster than HDF5 by this where it gains most, and no
 * slower elsewhere. */
#define CLEAR_GAIN 0.8

/* No file is read in larger windows; sums of offsets and this do not overflow. */
#define MAX_SIEVE_BYTES (INT64_C(1) << 40)

/* To permute elements in memory, measured with elements of 1 to 8 bytes: what moves as one costs
 * this besides one more copy of its bytes. */
#define PERMUTED_S 0.25e-9

/* ---- layouts ---- */

void sds_layouts_candidate(const sds_layouts *layouts, int32_t i, sds_candidate *out)
{
    if (layouts->table != NULL)
        sds_table_candidate_at(layouts->table, layouts->index, i,
                               out); /* was checked when opened */
    else
        *out = layouts->candidates[i];
}

int sds_candidate_has_large_chunks(const sds_candidate *candidate, const sds_table_dataset *dataset)
{
    if (candidate->storage != SDS_TABLE_CHUNKED) return 0;
    int64_t n_bytes = dataset->element_bytes;
    for (int32_t axis = 0; axis < candidate->rank; axis++)
        if (__builtin_mul_overflow(n_bytes, candidate->chunks.shape[axis], &n_bytes)) return 1;
    return n_bytes > SDS_MAX_CHUNK_BYTES;
}

int sds_is_one_run(const int64_t extent[], const sds_hyperslab *slab)
{
    /* Behind the first axis with several indices, every axis must be whole. */
    int has_begun = 0;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        const int64_t n = slab->count[axis] * slab->block[axis];
        if (has_begun && n != extent[axis]) return 0;
        if (n == 1) continue;
        if (slab->count[axis] > 1 && slab->stride[axis] != slab->block[axis]) return 0;
        has_begun = 1;
    }
    return 1;
}

static sds_array original_array(const sds_table_dataset *dataset)
{
    sds_array array = {.rank = dataset->rank,
                       .element_bytes = dataset->element_bytes,
                       .offset_bytes = dataset->data_offset_bytes};
    for (int32_t axis = 0; axis < dataset->rank; axis++)
        array.extent[axis] = dataset->extent[axis];
    return array;
}

static int64_t bytes_of(const sds_table_dataset *dataset)
{
    int64_t bytes = dataset->element_bytes;
    for (int32_t axis = 0; axis < dataset->rank; axis++)
        if (__builtin_mul_overflow(bytes, dataset->extent[axis], &bytes)) return INT64_MAX;
    return bytes;
}

static int64_t elements_of(const sds_hyperslab *slab)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < slab->rank; axis++)
        n *= slab->count[axis] * slab->block[axis];
    return n;
}

int64_t sds_window_bytes(int64_t sieve_bytes)
{
    return sds__greatest(sieve_bytes, SDS__PAGE_BYTES);
}

/* ---- what reads are priced by ---- */

void sds__pricer_init(sds__pricer *out, const sds_layouts *layouts, const sds_choose_given *given)
{
    *out = (sds__pricer){.layouts = layouts, .given = given};
    if (given->parameters != NULL)
        out->costs = *given->parameters;
    else
        sds_io_parameters_builtin(&out->costs);
    out->sieve_bytes =
        given->sieve_bytes > 0 ? sds__least(given->sieve_bytes, MAX_SIEVE_BYTES) : SDS_SIEVE_BYTES;
    out->engine_reads =
        given->engine_reads_original && layouts->dataset.storage == SDS_TABLE_CONTIGUOUS &&
        (given->engine_always || bytes_of(&layouts->dataset) > sds_window_bytes(out->sieve_bytes));
    out->may_probe = given->probe != NULL && out->engine_reads;
    if (layouts->engine_model != NULL) {
        out->engine_model = *layouts->engine_model;
        return;
    }
    for (int32_t i = 0; i < layouts->dataset.n_candidates; i++) {
        sds_candidate candidate;
        sds_layouts_candidate(layouts, i, &candidate);
        if (candidate.storage != SDS_TABLE_CONTIGUOUS || !candidate.model.calibrated) continue;
        out->engine_model = candidate.model;
        return;
    }
}

int64_t sds__sieve_buffer(const sds__pricer *self)
{
    return sds__least(self->sieve_bytes, sds__greatest(bytes_of(&self->layouts->dataset), 1));
}

sds_plan_given sds__engine_state(sds__pricer *self, sds_cache cache, int is_mapped)
{
    const sds_choose_given *given = self->given;
    if (!self->has_state) {
        self->state = (sds_plan_given){.may_map = 1, .may_queue = 1};
        if (given->plan_given != NULL) given->plan_given(given->context, &self->state);
        self->has_state = 1;
    }
    sds_plan_given state = self->state;
    state.cache = cache;
    state.is_mapped = is_mapped && state.may_map;
    return state;
}

double sds__price(sds__pricer *self, const sds_cost_model *model, const sds_file_layout *layout,
                  const sds_features *features, int64_t gap_paper)
{
    const double n = self->given->n_processes > 1 ? self->given->n_processes : 1;
    /* Of the other processes no more is known than that they touch as many OSTs each. */
    const double touched = (double)features->osts_touched.high * n;
    const double most = (double)layout->striping.stripe_count;
    const double osts = touched < most ? touched : most;
    sds_model_inputs inputs;
    sds_model_inputs_of_read(features, gap_paper, n / (osts > 1 ? osts : 1), &inputs);
    return sds_cost_of(model, &inputs);
}

/* Cold seconds of a selection of an array that is stored contiguously. */
static double price_array(sds__pricer *self, const sds_array *array, const sds_hyperslab *slab,
                          const sds_file_layout *layout, const sds_cost_model *model,
                          int64_t most_steps)
{
    sds_runs runs;
    sds_features features;
    int64_t gap_paper = 0;
    if (sds_runs_of(array, slab, &runs) != SDS_OK ||
        sds_features_in_steps(&runs, &layout->striping, &layout->raid, most_steps, &features) !=
            SDS_OK ||
        sds_block_gap_paper(array, slab, &gap_paper) != SDS_OK)
        return UNPREDICTABLE;
    return sds__price(self, model, layout, &features, gap_paper);
}

/* The engine's plan for data that is in memory, from a mapping that is there, or for cold data. */
static double planned_s(sds__pricer *self, const sds_array *array, const sds_hyperslab *slab,
                        sds_cache cache)
{
    const sds_plan_given state = sds__engine_state(self, cache, cache == SDS_CACHE_WARM);
    sds_read_plan plan;
    sds_runs runs;
    if (sds_runs_of(array, slab, &runs) != SDS_OK ||
        sds_plan_runs(&runs, &self->costs, NULL, &state, &plan) != SDS_OK)
        return UNPREDICTABLE;
    return plan.predicted_s;
}

/* Cold seconds of what the engine reads, with a margin where they are by its plan. */
static void price_by_engine(sds__pricer *self, const sds_array *array, const sds_hyperslab *slab,
                            const sds_file_layout *layout, const sds_cost_model *model,
                            double margin, sds_read_cost *out)
{
    out->is_planned = !model->calibrated;
    if (model->calibrated) {
        out->model_s = price_array(self, array, slab, layout, model, FEATURE_STEPS);
        return;
    }
    const double planned = planned_s(self, array, slab, SDS_CACHE_COLD);
    out->model_s = planned < 0 ? UNPREDICTABLE : (SDS__SERVING_S + planned) * margin;
}

/* ---- chunks ---- */

/* Blocks of a length on one axis, at most one for each place in a chunk where it can begin. */
static int64_t touched_on_axis(const sds_hyperslab *slab, int32_t axis, int64_t chunk)
{
    const int64_t start = slab->start[axis], stride = slab->stride[axis];
    const int64_t count = slab->count[axis], block = slab->block[axis];
    const int64_t last = start + (count - 1) * stride + block - 1;
    /* Only holes of a chunk and more leave one out, and then no two blocks share one. */
    if (count == 1 || stride - block < chunk) return last / chunk - start / chunk + 1;
    if (block == 1) return count;
    const int64_t period = chunk / sds__greatest_common_divisor(chunk, stride);
    int64_t in_period = 0, in_rest = 0;
    for (int64_t i = 0; i < sds__least(period, count); i++) {
        const int64_t begin = start + i * stride;
        const int64_t n = (begin + block - 1) / chunk - begin / chunk + 1;
        in_period += n;
        if (i < count % period) in_rest += n;
    }
    return count < period ? in_period : count / period * in_period + in_rest;
}

int64_t sds_chunks_touched(const int64_t chunk_shape[], const sds_hyperslab *slab)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < slab->rank; axis++)
        if (__builtin_mul_overflow(n, touched_on_axis(slab, axis, chunk_shape[axis]), &n))
            return -1;
    return n;
}

/* HDF5 reads whole chunks, one request each. Where they lie is not known: their blocks are taken
 * as dealt evenly to the disks, with a gap before each chunk. */
static int chunk_features(int64_t n_chunks, int64_t stored_bytes, int64_t bytes_useful,
                          const sds_file_layout *layout, sds_features *out)
{
    int64_t bytes, n_disks, row_bytes;
    if (layout->striping.stripe_bytes < 1 || __builtin_mul_overflow(stored_bytes, n_chunks, &bytes))
        return 0;
    const int64_t n_stripes = sds__divide_up(bytes, layout->striping.stripe_bytes);
    const int64_t n_osts = sds__least(n_stripes, layout->striping.stripe_count);
    if (__builtin_mul_overflow(sds__greatest(n_osts, 1), layout->raid.data_disks, &n_disks) ||
        __builtin_mul_overflow(n_disks, layout->raid.unit_bytes, &row_bytes) || row_bytes < 1)
        return 0;
    const int64_t depth = sds__divide_up(bytes, row_bytes);
    *out = (sds_features){
        .runs = n_chunks,
        .bytes_useful = bytes_useful,
        .block_depth = {depth, depth},
        .block_gap_count = {n_chunks - 1, n_chunks - 1},
        .block_gap_distance = {n_chunks - 1, n_chunks - 1},
        .bytes_touched = {bytes, bytes},
        .osts_touched = {n_osts, n_osts},
        .disks_touched = {n_disks, n_disks},
    };
    return 1;
}

void sds__price_chunks(sds__pricer *self, const sds_chunking *chunks, const int64_t extent[],
                       int64_t n_chunks, int64_t n_elements, const sds_file_layout *layout,
                       const sds_cost_model *model, sds_read_cost *out)
{
    const sds_table_dataset *dataset = &self->layouts->dataset;
    int64_t chunk_bytes = dataset->element_bytes, n_stored = 1, bytes_useful;
    sds_features features;
    out->model_s = UNPREDICTABLE;
    for (int32_t axis = 0; axis < dataset->rank; axis++)
        if (__builtin_mul_overflow(chunk_bytes, chunks->shape[axis], &chunk_bytes) ||
            __builtin_mul_overflow(n_stored, sds__divide_up(extent[axis], chunks->shape[axis]),
                                   &n_stored))
            return;
    const int64_t stored_bytes =
        n_stored > 0 ? sds__divide_up(chunks->stored_bytes, n_stored) : chunk_bytes;
    if (n_chunks < 0 || __builtin_mul_overflow(n_elements, dataset->element_bytes, &bytes_useful) ||
        !chunk_features(n_chunks, stored_bytes, bytes_useful, layout, &features))
        return;
    const double n = (double)n_chunks;
    out->model_s = sds__price(self, model, layout, &features, features.block_gap_distance.high);
    out->more_s = n * SDS_HDF5_CHUNK_S + n * (double)chunk_bytes * chunks->decode_s_per_byte;
    /* Where chunks lie is not known, so nothing is probed. */
    out->warm_s = out->model_s + out->more_s;
}

/* ---- one layout ---- */

/* To permute elements in memory, in groups that move as one. */
static double permute_in_groups_s(sds__pricer *self, int64_t n_elements, int64_t together)
{
    const double bytes = (double)n_elements * (double)self->layouts->dataset.element_bytes;
    return bytes * self->costs.copy_s_per_byte + (double)(n_elements / together) * PERMUTED_S;
}

/* Seconds to put a candidate's elements into the order of the source. */
static double permute_s(sds__pricer *self, const sds_candidate *candidate,
                        const sds_hyperslab *slab, int64_t n_elements)
{
    int64_t shape[SDS_MAX_RANK], together = 1;
    for (int32_t axis = 0; axis < slab->rank; axis++) {
        const int32_t of_source = candidate->order[axis];
        shape[axis] = slab->count[of_source] * slab->block[of_source];
    }
    if (sds_candidate_keeps_order(candidate, shape)) return 0;
    int32_t source_axis = slab->rank;
    for (int32_t axis = slab->rank - 1; axis >= 0; axis--) {
        if (shape[axis] == 1) continue;
        do {
            source_axis--;
        } while (slab->count[source_axis] * slab->block[source_axis] == 1);
        if (candidate->order[axis] != source_axis) break;
        together *= shape[axis];
    }
    return permute_in_groups_s(self, n_elements, together);
}

typedef struct piece_context {
    sds__pricer *self;
    const sds_candidate *candidate;
} piece_context;

static double price_piece(void *context, const sds_array *tile, const sds_hyperslab *slab,
                          int64_t n)
{
    const piece_context *at = context;
    if (!at->candidate->model.calibrated)
        return planned_s(at->self, tile, slab, SDS_CACHE_COLD) * SDS_PLAN_MARGIN;
    const int64_t share = n > SDS_MAX_COUNTED_PIECES ? FEATURE_STEPS : FEATURE_STEPS / n;
    return price_array(at->self, tile, slab, &at->candidate->layout, &at->candidate->model, share);
}

/* Of a candidate that holds the selection. */
static void price_candidate(sds__pricer *self, const sds_candidate *candidate,
                            const sds_hyperslab *slab, sds_read_cost *out)
{
    const sds_table_dataset *dataset = &self->layouts->dataset;
    const int64_t n_elements = elements_of(slab);
    sds_hyperslab stored;
    sds_array array;
    *out = (sds_read_cost){.model_s = UNPREDICTABLE};
    if (candidate->tiles.n > 0) {
        piece_context at = {self, candidate};
        out->is_planned = !candidate->model.calibrated;
        /* What any read takes is paid once. */
        const double start_s = out->is_planned ? 0 : sds_cost_start(&candidate->model);
        out->model_s = sds_tiles_cost(candidate, dataset, slab, start_s, price_piece, &at);
        if (out->is_planned && out->model_s >= 0) out->model_s += SDS__SERVING_S * SDS_PLAN_MARGIN;
        out->more_s = permute_s(self, candidate, slab, n_elements);
        out->warm_s = out->model_s + out->more_s;
        return;
    }
    if (sds_candidate_slab(candidate, slab, &stored) != SDS_OK) return;
    sds_candidate_array(candidate, dataset, &array);
    const double permuting_s = permute_s(self, candidate, slab, n_elements);
    if (candidate->storage == SDS_TABLE_CHUNKED) {
        sds__price_chunks(self, &candidate->chunks, array.extent,
                          sds_chunks_touched(candidate->chunks.shape, &stored), n_elements,
                          &candidate->layout, &candidate->model, out);
        out->more_s += permuting_s;
        out->warm_s = out->model_s + out->more_s;
        return;
    }
    price_by_engine(self, &array, &stored, &candidate->layout, &candidate->model, SDS_PLAN_MARGIN,
                    out);
    out->more_s = permuting_s;
    out->warm_s = out->model_s + out->more_s;
    if (!(self->may_probe || self->wants_all) || out->model_s < 0) return;
    out->is_probed = self->may_probe;
    const double planned = planned_s(self, &array, &stored, SDS_CACHE_WARM);
    const double warm_s = (SDS__SERVING_S + planned + permuting_s) * SDS_PLAN_MARGIN;
    if (planned >= 0 && warm_s < out->warm_s) out->warm_s = warm_s;
}

/* ---- the original ---- */

int32_t sds__choose_original_reader(sds__pricer *self, const sds__sieved *by_hdf5, double factor,
                                    sds__plan_of *plan_of, const void *read, int32_t *hangs_on)
{
    const sds_choose_given *given = self->given;
    const sds_io_parameters *costs = &self->costs;
    *hangs_on = 0;
    if (!self->engine_reads) return SDS_BY_HDF5;
    if (given->engine_always) return SDS_BY_ENGINE;
    const double hdf5_hot_s = sds__sieved_hot_s(by_hdf5, costs);
    const double hdf5_warm_s = sds__sieved_warm_s(by_hdf5, costs);
    if (hdf5_hot_s <= HOT_SERVING_S) return SDS_BY_HDF5;
    const int may_be_hot = by_hdf5->bytes <= MAX_HOT_BYTES;
    if (given->n_judged != NULL && __atomic_fetch_add(given->n_judged, 1, __ATOMIC_RELAXED) == 0 &&
        may_be_hot) {
        /* The first read of a file, which no mapping serves, is left to HDF5 where all lies in the
         * processor's caches, and calls would lose more than a part of what they gain where it does
         * not. Programs that read many files once come no further. */
        const double calls_s = by_hdf5->runs * costs->call_s;
        const double loss_s = HOT_SERVING_S + calls_s - hdf5_hot_s;
        const double gain_s = hdf5_warm_s - (SDS__SERVING_S + calls_s);
        *hangs_on = loss_s > 0 && loss_s > gain_s * PART_AT_STAKE ? SDS_ON_MAPPING : 0;
        if (*hangs_on) return SDS_BY_HDF5;
    }
    /* The engine is slower the first time: then it maps the file. */
    const double engine_hot_s = plan_of(self, read, sds__engine_state(self, SDS_CACHE_WARM, 1));
    const double engine_warm_s = plan_of(self, read, sds__engine_state(self, SDS_CACHE_WARM, 0));
    const double engine_cold_s = plan_of(self, read, sds__engine_state(self, SDS_CACHE_COLD, 0));
    if (engine_hot_s < 0 || engine_warm_s < 0 || engine_cold_s < 0) return SDS_BY_HDF5;
    const double hot = (HOT_SERVING_S + engine_hot_s * factor) / hdf5_hot_s;
    const double warm = (SDS__SERVING_S + engine_warm_s * factor) / hdf5_warm_s;
    const double cold = (SDS__SERVING_S + engine_cold_s * factor) /
                        sds__sieved_walk_s(by_hdf5, costs, bytes_of(&self->layouts->dataset));
    if ((hot > 1 && may_be_hot) || warm > 1) return SDS_BY_HDF5;
    if (cold < CLEAR_GAIN) return SDS_BY_ENGINE;
    return warm < CLEAR_GAIN ? SDS_BY_ENGINE_IF_CACHED : SDS_BY_HDF5;
}

static double plan_of_runs(sds__pricer *self, const void *read, sds_plan_given state)
{
    sds_read_plan plan;
    if (sds_plan_runs(read, &self->costs, NULL, &state, &plan) != SDS_OK) return UNPREDICTABLE;
    return plan.predicted_s;
}

/* How the original is read; its times where they are wanted. */
static void judge_and_price(sds__pricer *self, const sds_hyperslab *slab, int is_priced,
                            sds_read_costs *out)
{
    const sds_table_dataset *dataset = &self->layouts->dataset;
    out->original = SDS_BY_HDF5;
    out->hangs_on = 0;
    out->by_hdf5 = out->by_engine = (sds_read_cost){.model_s = UNPREDICTABLE};
    if (dataset->storage == SDS_TABLE_CHUNKED && is_priced)
        sds__price_chunks(self, &dataset->chunks, dataset->extent,
                          sds_chunks_touched(dataset->chunks.shape, slab), elements_of(slab),
                          &dataset->layout, &dataset->model, &out->by_hdf5);
    if (dataset->storage != SDS_TABLE_CONTIGUOUS) return;
    const sds_array array = original_array(dataset);
    sds_runs runs;
    sds__sieved sieved;
    if (sds_runs_of(&array, slab, &runs) != SDS_OK) return;
    sds__sieve_runs(&runs, sds__sieve_buffer(self), &sieved);
    out->original =
        sds__choose_original_reader(self, &sieved, 1, plan_of_runs, &runs, &out->hangs_on);
    if (!is_priced) return;
    out->by_hdf5.is_planned = !dataset->model.calibrated;
    out->by_hdf5.model_s =
        dataset->model.calibrated
            ? price_array(self, &array, slab, &dataset->layout, &dataset->model, FEATURE_STEPS)
            : sds__sieved_cold_s(&sieved, &self->costs);
    out->by_hdf5.warm_s = out->by_hdf5.model_s;
    if (self->engine_reads) {
        price_by_engine(self, &array, slab, &dataset->layout, &self->engine_model, 1,
                        &out->by_engine);
        out->by_engine.warm_s = out->by_engine.model_s;
    }
    if (!self->may_probe) return;
    const double planned = planned_s(self, &array, slab, SDS_CACHE_WARM);
    sds__bound_warm(&out->by_hdf5, sds__sieved_warm_s(&sieved, &self->costs));
    sds__bound_warm(&out->by_engine, planned < 0 ? planned : SDS__SERVING_S + planned);
}

void sds__bound_warm(sds_read_cost *cost, double warm_s)
{
    if (warm_s >= 0 && warm_s < cost->warm_s) cost->warm_s = warm_s;
}

double sds_original_s(const sds_read_costs *costs)
{
    const double hdf5_s = sds_cold_s(&costs->by_hdf5), engine_s = sds_cold_s(&costs->by_engine);
    return costs->original == SDS_BY_ENGINE && engine_s >= 0 && engine_s < hdf5_s ? engine_s
                                                                                  : hdf5_s;
}

/* ---- the answer ---- */

/* What a choice costs at least and at most: the same once it is known what is in memory. */
typedef struct interval {
    double low_s, high_s;
} interval;

static int is_better(double a_s, double a_more_s, double b_s, double b_more_s)
{
    return a_s < b_s || (a_s <= b_s && a_more_s < b_more_s);
}

int32_t sds__choose_least(sds__pricer *self, sds_read_costs *costs, int32_t n)
{
    const sds_choose_given *given = self->given;
    const int is_by_engine = costs->original != SDS_BY_HDF5 && costs->by_engine.model_s >= 0;
    int is_cached = 0;     /* the original */
    int32_t unprobed = -1; /* best of all, as long as nothing is known to be in memory */
    /* Number 0 is the original. */
    interval range[SDS_MAX_CANDIDATES + 1];
    if (n > SDS_MAX_CANDIDATES) n = SDS_MAX_CANDIDATES;
    range[0].high_s = sds_original_s(costs);
    range[0].low_s = is_by_engine ? costs->by_engine.warm_s : costs->by_hdf5.warm_s;
    if (range[0].high_s < 0) return costs->original;
    for (int32_t i = 0; i < n; i++) {
        const double cold_s = sds_cold_s(&costs->candidate[i]);
        range[i + 1].high_s = cold_s < range[0].high_s ? cold_s : UNPREDICTABLE;
        range[i + 1].low_s =
            costs->candidate[i].is_probed ? costs->candidate[i].warm_s : range[i + 1].high_s;
    }
    for (;;) {
        int32_t best = 0, open = -1;
        for (int32_t i = 1; i <= n; i++) {
            if (range[i].high_s < 0) continue;
            const double best_more_s = best == 0 ? 0 : costs->candidate[best - 1].more_s;
            if (is_better(range[i].high_s, costs->candidate[i - 1].more_s, range[best].high_s,
                          best_more_s))
                best = i;
        }
        /* Which may still cost less than the best at its most. */
        for (int32_t i = n; i >= 0; i--)
            if (i != best && range[i].high_s >= 0 && range[i].low_s < range[best].high_s) open = i;
        if (unprobed < 0) unprobed = best;
        if (open < 0 || !self->may_probe) {
            const int32_t original =
                is_cached && is_by_engine ? SDS_BY_ENGINE_IF_CACHED : costs->original;
            if (best != unprobed || (best == 0 && original != costs->original))
                costs->hangs_on |= SDS_ON_FINDING;
            return best > 0 ? best - 1 : original;
        }
        /* First the original, which is open; then what would serve, which will be. */
        const int32_t next = open != 0 && range[best].low_s < range[best].high_s ? best : open;
        costs->hangs_on |= SDS_ON_CACHE;
        const sds_cache found = given->probe(given->context, next == 0 ? SDS_BY_ENGINE : next - 1);
        if (found == SDS_CACHE_WARM)
            range[next].high_s = range[next].low_s;
        else
            range[next].low_s = range[next].high_s;
        if (next != 0) continue;
        if (found == SDS_CACHE_UNKNOWN) self->may_probe = 0; /* nor elsewhere */
        if (found != SDS_CACHE_WARM) continue;
        is_cached = 1;
        const double gain = range[0].low_s / sds_original_s(costs);
        for (int32_t i = 1; i <= n; i++)
            if (range[i].high_s >= 0 && !costs->candidate[i - 1].is_probed)
                range[i].low_s = range[i].high_s *= gain;
    }
}

/* Whether a candidate may serve a selection at all. */
static int may_serve(sds__pricer *self, const sds_candidate *candidate, const sds_hyperslab *slab)
{
    return sds_candidate_holds(candidate, slab) &&
           !sds_candidate_has_large_chunks(candidate, &self->layouts->dataset) &&
           (!self->given->active_only || candidate->shadow_permille >= 1000);
}

int32_t sds_choose(const sds_layouts *layouts, const sds_hyperslab *slab,
                   const sds_choose_given *given, sds_read_costs *costs)
{
    const sds_table_dataset *dataset = &layouts->dataset;
    const int is_complete = costs != NULL && costs->candidate != NULL;
    const int is_plain = dataset->storage == SDS_TABLE_CONTIGUOUS && !given->engine_always &&
                         sds_is_one_run(dataset->extent, slab);
    sds_read_costs own = {0};
    sds_read_cost of_candidates[SDS_MAX_CANDIDATES];
    if (costs == NULL) costs = &own;
    if (is_plain && !is_complete) {
        costs->hangs_on = 0;
        return costs->original = SDS_BY_HDF5;
    }
    int32_t n = dataset->n_candidates;
    if (!is_complete) n = (int32_t)sds__least(n, SDS_MAX_CANDIDATES);
    sds_read_cost *const wanted = costs->candidate;
    costs->hangs_on = 0;
    sds__pricer self;
    sds__pricer_init(&self, layouts, given);
    self.wants_all = is_complete;
    judge_and_price(&self, slab, n > 0 || is_complete, costs);
    if (is_plain) costs->original = SDS_BY_HDF5;
    if (n == 0) return costs->original;
    if (!is_complete) costs->candidate = of_candidates;
    for (int32_t i = 0; i < n; i++) {
        sds_candidate candidate;
        sds_layouts_candidate(layouts, i, &candidate);
        costs->candidate[i] = (sds_read_cost){.model_s = UNPREDICTABLE};
        if (may_serve(&self, &candidate, slab))
            price_candidate(&self, &candidate, slab, &costs->candidate[i]);
    }
    const int32_t choice = is_plain ? SDS_BY_HDF5 : sds__choose_least(&self, costs, n);
    costs->candidate = wanted;
    return choice;
}
