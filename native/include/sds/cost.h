/* Predicted time of one read, or of one operation of several processes, from what it touches.
 *
 * Liu 2014, Eq. 3, 4, 5 and 6, the built-in model that serves until a file system is calibrated,
 * and SDS's own models. The same functions predict in Python and in the connector.
 */
#ifndef SDS_COST_H
#define SDS_COST_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* F: seconds; BD, BG: block depth and block gap; P: processes per OST. */
typedef enum sds_model_kind {
    SDS_MODEL_BUILTIN = 0,  /* F = c0 + c1*min(runs, pages touched) + c2*bytes_touched */
    SDS_MODEL_EQ3 = 3,      /* F = c0 + c1*BD + c2*BG */
    SDS_MODEL_EQ4 = 4,      /* F = c0 + c1*BD + c2*BG + c3*P */
    SDS_MODEL_EQ5 = 5,      /* collective, F = F1 + F2, the phases of I/O and of the shuffle:
                               F1 = c0 + c1*BD + c2*BG + c3*P
                               F2 = c4 + c5*processes + c6*aggregators + c7*bytes/aggregators */
    SDS_MODEL_EQ6 = 6,      /* F = c0 + c1*BD + c2*BG + c3*P + c4*BD*BG + c5*BD*P + c6*BG*P
                               + c7*BD*BG*P */
    SDS_MODEL_SERVICE = 16, /* the time that parts of the storage spend, c0 to c6 >= 0:
                              F = c0*first_visits + c1*runs_most + c2*trips_most
                                  + least(c5*later_fetches, c6*fetch_distance)
                                  + c3*step_bytes + c4*ost_bytes
                                  + c6*disk_blocks + least(c5*disk_segments, c6*disk_distance)
                              c5: a seek; c6: a block read, or passed over where that is quicker */
    SDS_MODEL_SIEVE = 17    /* through HDF5's sieve buffer, all coefficients >= 0:
                               F = c0 + c1*sieve_requests + c2*sieve_jumps + c3*sieve_bytes
                               + c4*runs_most + P*(c5*sieve_requests + c6*sieve_jumps
                               + c7*sieve_bytes) */
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

/* What models predict from. "Most": of the process, OST or disk with most. */
#define SDS_MODEL_INPUT_MAP(XX)                                                                    \
    XX(block_depth)        /* independent: most of one process; collective: of the union */        \
    XX(block_gap_count)    /* likewise */                                                          \
    XX(block_gap_distance) /* likewise */                                                          \
    XX(block_gap_paper)    /* likewise, in elements */                                             \
    XX(processes_per_ost)  /* P; collective: aggregators per OST */                                \
    XX(runs_most)          /* of one process */                                                    \
    XX(bytes_touched_most) /* of one process */                                                    \
    XX(bytes_useful)       /* of all processes */                                                  \
    XX(n_processes)                                                                                \
    XX(n_aggregators)  /* collective; else 0 */                                                    \
    XX(first_visits)   /* OSTs that one process is the first to read from, one after another */    \
    XX(later_fetches)  /* of one process, where runs that a client reads in one go are one */      \
    XX(trips_most)     /* requests to servers that one process waits for */                        \
    XX(fetch_distance) /* blocks that a disk's head is away when these begin, added up */          \
    XX(step_bytes)     /* sent by one server were all processes in step, summed over the steps */  \
    XX(ost_bytes)      /* sent by one server, on average */                                        \
    XX(disk_segments)  /* unbroken successions of blocks, of all processes, most on a disk */      \
    XX(disk_blocks)    /* in them */                                                               \
    XX(disk_distance)  /* untouched blocks between them */                                         \
    XX(sieve_requests) /* that HDF5 makes, of the process with most */                             \
    XX(sieve_jumps)    /* of them, that do not go on where the one before ended */                 \
    XX(sieve_bytes)    /* that it reads */

typedef struct sds_model_inputs {
#define XX(name) double name;
    SDS_MODEL_INPUT_MAP(XX)
#undef XX
} sds_model_inputs;

/* Number of inputs: an sds_model_inputs is as many doubles, in the order of the map. */
enum {
#define XX(name) sds__model_input_##name,
    SDS_MODEL_INPUT_MAP(XX)
#undef XX
        SDS_N_MODEL_INPUTS
};

/* The built-in model: cold requests one after the other, at the built-in costs (sds/io_model.h). */
void sds_cost_builtin(sds_cost_model *out);

/* Terms of a kind, 0 where there is no such kind. */
int32_t sds_model_terms(int32_t kind);

/* Inputs of an operation of which one read is known: the others are taken to read as much, as
 * many of them from the OSTs of this one as P says. Inexact features count with their high bound.
 */
void sds_model_inputs_of_read(const sds_features *features, int64_t block_gap_paper,
                              double processes_per_ost, sds_model_inputs *out);

/* What a model says that any read takes, whatever it touches; 0 where it says nothing of that. Paid
 * once by what is read together. */
double sds_cost_start(const sds_cost_model *model);

/* What the coefficients of a kind multiply, in their order; returns how many there are. */
int32_t sds_cost_terms(int32_t kind, int32_t gap, const sds_model_inputs *inputs,
                       double terms[SDS_MODEL_TERMS]);

/* Predicted seconds. */
double sds_cost_of(const sds_cost_model *model, const sds_model_inputs *inputs);

/* The same of n operations: input[m][i] is input m, in the order of the map, of number i. */
void sds_cost_of_many(const sds_cost_model *model, size_t n,
                      const double *const input[SDS_N_MODEL_INPUTS], double seconds[]);

/* Predicted seconds of an operation of which one read is known; block_gap_paper is read only where
 * the model's gap is SDS_GAP_PAPER. */
double sds_cost_predict(const sds_cost_model *model, const sds_features *features,
                        int64_t block_gap_paper, double processes_per_ost);

#ifdef __cplusplus
}
#endif
#endif
