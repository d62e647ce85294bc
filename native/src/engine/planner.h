/* The planner's entry for those that have an access already. Internal. */
#ifndef SDS_PLANNER_H
#define SDS_PLANNER_H

#include "pieces.h"
#include "sds/read_plan.h"

/* Most pieces of one vectored call: as many holes go with them (IOV_MAX is 1024). */
#define SDS__VECTOR_PIECES 512

/* Most bytes of one call: Linux reads less than 2 GiB at a time. */
#define SDS__MAX_CALL_BYTES (INT64_C(1) << 30)

/* Plan an access that sds__access_check() accepts. As sds_plan_runs(). */
sds_status sds__plan_access(const sds__access *access, const sds_io_parameters *parameters,
                            const sds_read_options *options, const sds_plan_given *given,
                            sds_read_plan *out);

/* Whether nothing is asked for by name. */
static inline int sds__is_default(const sds_read_options *options)
{
    return options->strategy == SDS_STRATEGY_AUTO && options->executor == SDS_EXECUTOR_ANY &&
           options->cache == SDS_CACHE_UNKNOWN;
}

/* How many pieces of a group an executor takes at most. */
static inline int64_t sds__group_pieces(const sds_read_plan *plan)
{
    return plan->executor == SDS_EXECUTOR_VECTOR ? SDS__VECTOR_PIECES : INT64_MAX;
}

#endif
