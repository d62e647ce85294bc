/* Predicted time of one read. */
#include "sds/cost.h"

#include <string.h>

#include "arithmetic.h"

/* Without a calibration: HDF5 reading cold from a local disk.
 *
 * HDF5 reads 64 KiB for each run, or for two neighbouring ones. On the virtual disk this was
 * measured on (2 GiB of float64, page cache emptied) a run took 20 us (65,536 of them in a plane
 * across the grain) to 145 us (256 in a line far apart): 60 us is between. Long runs came at 0.65
 * to 2.6 GB/s: 1 GB/s. A read of one short run took 0.5 to 0.8 ms with opening the file, and
 * 10 us at least once everything was cached. A layout must save requests or bytes by a wide margin
 * to look better under these constants, whatever the cache holds. */
#define BUILTIN_READ_S 200e-6
#define BUILTIN_RUN_S 60e-6
#define BUILTIN_BYTE_S 1e-9
#define BUILTIN_FLOOR_S 10e-6
/* Runs within one page are no requests of their own: the sieve read of the first brings it all. */
#define BUILTIN_PAGE_BYTES 4096

void sds_cost_builtin(sds_cost_model *out)
{
    memset(out, 0, sizeof *out);
    out->kind = SDS_MODEL_BUILTIN;
    out->gap = SDS_GAP_COUNT;
    out->n_terms = 3;
    out->coefficient[0] = BUILTIN_READ_S;
    out->coefficient[1] = BUILTIN_RUN_S;
    out->coefficient[2] = BUILTIN_BYTE_S;
    out->floor_s = BUILTIN_FLOOR_S;
}

/* The factors of Liu 2014's terms, by sds_model_kind; returns how many there are. */
static int list_terms(const sds_cost_model *model, const sds_features *features,
                      int64_t block_gap_paper, double processes, double terms[SDS_MODEL_TERMS])
{
    const double depth = (double)features->block_depth.high;
    double gap = (double)features->block_gap_count.high;
    if (model->gap == SDS_GAP_DISTANCE) gap = (double)features->block_gap_distance.high;
    if (model->gap == SDS_GAP_PAPER) gap = (double)block_gap_paper;
    terms[0] = 1;
    if (model->kind == SDS_MODEL_BUILTIN) {
        const double pages =
            (double)sds__divide_up(features->bytes_touched.high, BUILTIN_PAGE_BYTES);
        terms[1] = (double)features->runs < pages ? (double)features->runs : pages;
        terms[2] = (double)features->bytes_touched.high;
        return 3;
    }
    terms[1] = depth;
    terms[2] = gap;
    terms[3] = processes;
    terms[4] = depth * gap;
    terms[5] = depth * processes;
    terms[6] = gap * processes;
    terms[7] = depth * gap * processes;
    switch (model->kind) {
    case SDS_MODEL_EQ3:
        return 3;
    case SDS_MODEL_EQ4:
        return 4;
    default:
        return SDS_MODEL_TERMS;
    }
}

double sds_cost_predict(const sds_cost_model *model, const sds_features *features,
                        int64_t block_gap_paper, double processes_per_ost)
{
    double terms[SDS_MODEL_TERMS];
    const int n = list_terms(model, features, block_gap_paper, processes_per_ost, terms);
    double seconds = 0;
    for (int i = 0; i < n; i++)
        seconds += model->coefficient[i] * terms[i];
    /* Not "seconds < floor": a coefficient that is no number must not win by comparing false. */
    return seconds > model->floor_s ? seconds : model->floor_s;
}
