/* Predicted time of one read, from its features.
 *
 * Liu 2014, Eq. 3, 4 and 6, and the built-in model that serves until a file system is calibrated.
 * The same function predicts in Python and in the connector.
 */
#ifndef SDS_COST_H
#define SDS_COST_H

#include <stdint.h>

#include "sds/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* F: seconds; BD, BG: block depth and block gap; P: processes per OST. */
typedef enum sds_model_kind {
    SDS_MODEL_BUILTIN = 0, /* F = c0 + c1*min(runs, pages touched) + c2*bytes_touched */
    SDS_MODEL_EQ3 = 3,     /* F = c0 + c1*BD + c2*BG */
    SDS_MODEL_EQ4 = 4,     /* F = c0 + c1*BD + c2*BG + c3*P */
    SDS_MODEL_EQ6 = 6      /* F = c0 + c1*BD + c2*BG + c3*P + c4*BD*BG + c5*BD*P + c6*BG*P
                              + c7*BD*BG*P */
} sds_model_kind;

/* Which of the three block gaps a model was fitted with. */
typedef enum sds_gap_kind {
    SDS_GAP_COUNT = 0,
    SDS_GAP_DISTANCE = 1,
    SDS_GAP_PAPER = 2
} sds_gap_kind;

#define SDS_MODEL_TERMS 8

typedef struct sds_cost_model {
    int32_t kind;       /* sds_model_kind */
    int32_t gap;        /* sds_gap_kind */
    int32_t calibrated; /* 0: built in */
    int32_t n_terms;
    double coefficient[SDS_MODEL_TERMS]; /* seconds per unit of the term */
    double floor_s;                      /* no prediction is below this */
} sds_cost_model;

/* The built-in model, conservative on purpose: it favours a layout only where requests and bytes
 * touched both say so. */
void sds_cost_builtin(sds_cost_model *out);

/* Predicted seconds. processes_per_ost is P; block_gap_paper is read only where the model's gap
 * is SDS_GAP_PAPER. Inexact features count with their high bound. */
double sds_cost_predict(const sds_cost_model *model, const sds_features *features,
                        int64_t block_gap_paper, double processes_per_ost);

#ifdef __cplusplus
}
#endif
#endif
