/* The choice for selections that are no boxes, from a part of what they select. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"
#include "pricing.h"

#define UNPREDICTABLE (-1.0)

/* What serving costs besides reading, measured with everything in the cache. What HDF5 spends on
 * such reads, which is more, does not count: a chance is cheaper to lose than time. */
#define PIECE_S 40e-9
#define ELEMENT_S 5e-9

/* Rows of chunks that are counted. */
#define MAX_ROWS 1024

static int64_t times(int64_t n, double factor)
{
    const double product = (double)n * factor;
    return product < 4e18 ? (int64_t)product : INT64_C(4000000000000000000);
}

static void scale(sds_features *features, double factor)
{
    if (factor <= 1) return;
    features->runs = times(features->runs, factor);
    features->bytes_useful = times(features->bytes_useful, factor);
    sds_bounds *const bounds[] = {&features->block_depth, &features->block_gap_count,
                                  &features->block_gap_distance, &features->bytes_touched};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        bounds[i]->low = times(bounds[i]->low, factor);
        bounds[i]->high = times(bounds[i]->high, factor);
    }
}

/* Sorted pieces that touch or overlap are one range. */
static size_t join(size_t n, const sds_piece pieces[], sds_extent out[])
{
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t offset = pieces[i].offset, end = offset + pieces[i].length;
        sds_extent *last = &out[n_out > 0 ? n_out - 1 : 0];
        if (n_out > 0 && offset <= last->offset + last->length)
            last->length = sds__greatest(end - last->offset, last->length);
        else
            out[n_out++] = (sds_extent){offset, end - offset};
    }
    return n_out;
}

/* One layout's pieces. */
typedef struct listed {
    size_t n;
    const sds_piece *pieces;
    double factor;
} listed;

static double plan_of_pieces(sds__pricer *self, const void *read, sds_plan_given state)
{
    const listed *list = read;
    sds_read_plan plan;
    return sds_plan_pieces(list->n, list->pieces, &self->costs, NULL, &state, &plan) == SDS_OK
               ? plan.predicted_s
               : UNPREDICTABLE;
}

static void price_by_model(sds__pricer *self, const listed *list, const sds_file_layout *layout,
                           const sds_cost_model *model, int64_t bytes_useful, sds_read_cost *out)
{
    *out = (sds_read_cost){.model_s = UNPREDICTABLE};
    sds_features features;
    sds_extent *extents = malloc(list->n * sizeof *extents);
    const size_t n = extents != NULL ? join(list->n, list->pieces, extents) : 0;
    if (n > 0 && sds_features_of_extents(n, extents, &layout->striping, &layout->raid, 0,
                                         &features) == SDS_OK) {
        scale(&features, list->factor);
        features.bytes_useful = bytes_useful;
        features.sieve = (sds_sieve){0};
        out->model_s = sds__price(self, model, layout, &features, features.block_gap_distance.high);
    }
    free(extents);
    out->warm_s = out->model_s;
}

/* Of what the engine reads; with a margin where it is by its plan. */
static void price_by_engine(sds__pricer *self, const listed *list, const sds_file_layout *layout,
                            const sds_cost_model *model, int64_t bytes_useful, double margin,
                            sds_read_cost *out)
{
    if (model->calibrated) {
        price_by_model(self, list, layout, model, bytes_useful, out);
        return;
    }
    const double planned = plan_of_pieces(self, list, sds__engine_state(self, SDS_CACHE_COLD, 0));
    *out = (sds_read_cost){.model_s = UNPREDICTABLE, .is_planned = 1};
    if (planned >= 0) out->model_s = (SDS__SERVING_S + planned * list->factor) * margin;
    out->warm_s = out->model_s;
}

/* What serving a listed read takes besides, also from memory: there raised by a margin. */
static void add_serving(sds__pricer *self, const listed *list, int64_t n_elements, double margin,
                        sds_read_cost *cost)
{
    if (cost->model_s < 0) return;
    cost->more_s = (double)list->n * list->factor * PIECE_S + (double)n_elements * ELEMENT_S;
    cost->warm_s += cost->more_s;
    cost->is_probed = 1;
    if (!self->may_probe) return;
    const double planned = plan_of_pieces(self, list, sds__engine_state(self, SDS_CACHE_WARM, 1));
    const double warm_s = SDS__SERVING_S + planned * list->factor + cost->more_s;
    sds__bound_warm(cost, planned < 0 ? planned : warm_s * margin);
}

/* ---- chunked originals ---- */

/* Chunks that runs touch, by number: rows of chunks that are neighbours on the last axis. */
typedef struct chunk_count {
    const sds_table_dataset *dataset;
    int32_t axis; /* on which it is counted how far the runs reach */
    int64_t lowest, highest;
    int64_t n_elements; /* in what was counted */
    size_t n;
    sds_piece rows[2 * MAX_ROWS]; /* and as many again, for sorting */
} chunk_count;

/* Elements that follow each other on the last axis. */
static int add_row(chunk_count *count, const int64_t index[], int64_t length)
{
    if (count->n == MAX_ROWS) return 0;
    const int64_t *extent = count->dataset->extent, *shape = count->dataset->chunks.shape;
    const int32_t last = count->dataset->rank - 1;
    int64_t number = 0;
    for (int32_t axis = 0; axis <= last; axis++)
        number = number * sds__divide_up(extent[axis], shape[axis]) + index[axis] / shape[axis];
    const int64_t n = (index[last] + length - 1) / shape[last] - index[last] / shape[last] + 1;
    const int64_t layer = index[count->axis] / shape[count->axis];
    count->lowest = sds__least(count->lowest, layer);
    count->highest = sds__greatest(count->highest, count->axis == last ? layer + n - 1 : layer);
    count->rows[count->n++] = (sds_piece){number, n, 0};
    count->n_elements += length;
    return 1;
}

static int add_run(chunk_count *count, const sds_extent *run)
{
    const int64_t *extent = count->dataset->extent;
    const int32_t last = count->dataset->rank - 1;
    int64_t index[SDS_MAX_RANK], rest = run->offset;
    for (int32_t axis = last; axis >= 0; axis--) {
        index[axis] = rest % extent[axis];
        rest /= extent[axis];
    }
    for (int64_t done = 0; done < run->length;) {
        const int64_t n = sds__least(run->length - done, extent[last] - index[last]);
        if (!add_row(count, index, n)) return 0;
        done += n;
        index[last] = 0;
        for (int32_t axis = last - 1; axis >= 0; axis--) {
            if (++index[axis] < extent[axis]) break;
            index[axis] = 0;
        }
    }
    return 1;
}

static int64_t count_distinct(chunk_count *count)
{
    sds_pieces_sort(count->n, count->rows, count->rows + MAX_ROWS);
    int64_t n = 0, end = 0;
    for (size_t i = 0; i < count->n; i++) {
        const int64_t last = count->rows[i].offset + count->rows[i].length;
        n += sds__greatest(last - sds__greatest(count->rows[i].offset, end), 0);
        end = sds__greatest(end, last);
    }
    return n;
}

/* Never more chunks than the whole selection touches, as far as can be told: an original that looks
 * cheaper than it is costs a chance, one that looks dearer costs time. */
static void price_chunked(sds__pricer *self, const sds_listed_read *read, sds_read_cost *out)
{
    const sds_table_dataset *dataset = &self->layouts->dataset;
    const int64_t *shape = dataset->chunks.shape;
    /* Layers of chunks that the bounding box has on the first axis on which it has several. */
    int32_t axis = 0;
    int64_t layers = 1, in_box = 1;
    for (int32_t i = 0; i < dataset->rank; i++) {
        const int64_t n = read->high[i] / shape[i] - read->low[i] / shape[i] + 1;
        if (layers == 1) axis = i, layers = n;
        if (__builtin_mul_overflow(in_box, n, &in_box)) return;
    }
    chunk_count *count = malloc(sizeof *count); /* the stack may be a small thread's */
    if (count == NULL) return;
    count->dataset = dataset;
    count->axis = axis;
    count->lowest = INT64_MAX;
    count->highest = -1;
    count->n_elements = 0;
    count->n = 0;
    for (size_t i = 0; i < read->n && add_run(count, &read->runs[i]); i++) {}
    if (count->n_elements > 0) {
        const double by_elements = (double)read->n_elements / (double)count->n_elements;
        const double by_layers = (double)layers / (double)(count->highest - count->lowest + 1);
        const double factor = by_elements < by_layers ? by_elements : by_layers;
        const int64_t n = count_distinct(count);
        const int64_t n_chunks = sds__least(factor > 1 ? times(n, factor) : n, in_box);
        sds__price_chunks(self, &dataset->chunks, dataset->extent, n_chunks, read->n_elements,
                          &dataset->layout, &dataset->model, out);
    }
    free(count);
}

/* ---- the answer ---- */

/* How the original is read; its times where they are wanted. */
static void judge_and_price(sds__pricer *self, const sds_listed_read *read, int is_priced,
                            sds_read_costs *out)
{
    const sds_table_dataset *dataset = &self->layouts->dataset;
    listed list;
    if (dataset->storage == SDS_TABLE_CHUNKED && is_priced) {
        price_chunked(self, read, &out->by_hdf5);
        return;
    }
    if (dataset->storage != SDS_TABLE_CONTIGUOUS) return;
    list.factor = read->list(read->context, SDS_BY_ENGINE, &list.n, &list.pieces);
    if (list.factor <= 0) return;
    sds__sieved sieved;
    sds__sieve_extents(read->n, read->runs, dataset->element_bytes, sds__sieve_buffer(self),
                       list.factor, &sieved);
    if (!is_priced) {
        out->original = sds__choose_original_reader(self, &sieved, list.factor, plan_of_pieces,
                                                    &list, &out->hangs_on);
        return;
    }
    const int64_t bytes = read->n_elements * dataset->element_bytes;
    if (dataset->model.calibrated)
        price_by_model(self, &list, &dataset->layout, &dataset->model, bytes, &out->by_hdf5);
    else
        out->by_hdf5.model_s = out->by_hdf5.warm_s = sds__sieved_cold_s(&sieved, &self->costs);
    if (list.factor <= 1 && list.n == 1) out->by_hdf5.model_s = 0; /* no replica reads less */
    if (self->may_probe) sds__bound_warm(&out->by_hdf5, sds__sieved_warm_s(&sieved, &self->costs));
    if (!self->engine_reads) return;
    price_by_engine(self, &list, &dataset->layout, &self->engine_model, bytes, 1, &out->by_engine);
    add_serving(self, &list, read->n_elements, 1, &out->by_engine);
}

int32_t sds_choose_listed(const sds_layouts *layouts, const sds_listed_read *read,
                          const sds_choose_given *given, int32_t *hangs_on)
{
    const sds_table_dataset *dataset = &layouts->dataset;
    const int32_t n = (int32_t)sds__least(dataset->n_candidates, SDS_MAX_CANDIDATES);
    sds_read_cost of_candidates[SDS_MAX_CANDIDATES];
    const sds_read_cost unknown = {.model_s = UNPREDICTABLE};
    sds_read_costs costs = {unknown, unknown, SDS_BY_HDF5, 0, of_candidates};
    int32_t n_priced = 0;
    sds__pricer self;
    sds__pricer_init(&self, layouts, given);
    judge_and_price(&self, read, 0, &costs);
    for (int32_t i = 0; i < n; i++) {
        sds_candidate candidate;
        listed list;
        costs.candidate[i] = unknown;
        sds_layouts_candidate(layouts, i, &candidate);
        list.factor = read->list(read->context, i, &list.n, &list.pieces);
        if (list.factor <= 0) continue;
        n_priced++;
        price_by_engine(&self, &list, &candidate.layout, &candidate.model,
                        read->n_elements * dataset->element_bytes, SDS_PLAN_MARGIN,
                        &costs.candidate[i]);
        add_serving(&self, &list, read->n_elements, SDS_PLAN_MARGIN, &costs.candidate[i]);
    }
    int32_t choice = costs.original;
    if (n_priced > 0) {
        judge_and_price(&self, read, 1, &costs);
        choice = sds__choose_least(&self, &costs, n);
    }
    *hangs_on = costs.hangs_on;
    return choice;
}
