/* What the choices of sds/choose.h are priced by, for boxes and for lists of elements. Internal. */
#ifndef SDS_PRICING_H
#define SDS_PRICING_H

#include "sds/choose.h"
#include "sieve.h"

/* What serving a read costs besides reading. */
#define SDS__SERVING_S 3e-6

typedef struct sds__pricer {
    const sds_layouts *layouts;
    const sds_choose_given *given;
    sds_io_parameters costs;
    sds_cost_model engine_model; /* of the original read by the engine, where calibrated */
    int64_t sieve_bytes;
    int engine_reads; /* it may read the original */
    int may_probe;
    int wants_all;        /* times that no choice hangs on, too */
    sds_plan_given state; /* by sds__engine_state */
    int has_state;
} sds__pricer;

void sds__pricer_init(sds__pricer *out, const sds_layouts *layouts, const sds_choose_given *given);

/* Of HDF5's buffer, which is no larger than the dataset. */
int64_t sds__sieve_buffer(const sds__pricer *self);

/* What the engine's plans are made of, where the cache is this. */
sds_plan_given sds__engine_state(sds__pricer *self, sds_cache cache, int is_mapped);

/* Cold seconds of what has these features, by a model. */
double sds__price(sds__pricer *self, const sds_cost_model *model, const sds_file_layout *layout,
                  const sds_features *features, int64_t gap_paper);

/* Of a number of chunks that HDF5 reads whole, for the sake of n_elements. extent: of the array
 * that is cut into them. */
void sds__price_chunks(sds__pricer *self, const sds_chunking *chunks, const int64_t extent[],
                       int64_t n_chunks, int64_t n_elements, const sds_file_layout *layout,
                       const sds_cost_model *model, sds_read_cost *out);

/* Lower what a read takes in memory; a negative time is not known. */
void sds__bound_warm(sds_read_cost *cost, double warm_s);

/* Seconds of the engine's plan of a read in some state; negative where there is none. */
typedef double sds__plan_of(sds__pricer *self, const void *read, sds_plan_given state);

/* Who reads a contiguous original, and whether that hangs on what is mapped at the moment. factor:
 * how many times longer the read is than what is planned. */
int32_t sds__choose_original_reader(sds__pricer *self, const sds__sieved *by_hdf5, double factor,
                                    sds__plan_of *plan_of, const void *read, int32_t *hangs_on);

/* The least of the original and of the first n candidates: whose ranges of seconds overlap, of
 * those it is probed what is in memory. */
int32_t sds__choose_least(sds__pricer *self, sds_read_costs *costs, int32_t n);

#endif
