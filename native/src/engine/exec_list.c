/* Reads groups through the page cache, many in flight. */
#include "arithmetic.h"
#include "exec.h"
#include "request_queue.h"

/* Told to the kernel at once: with more, the device waits for the first ones. */
#define BATCH 16

sds_status sds__run_list(sds_file *file, const sds__access *access, const sds_read_plan *plan,
                         sds__place *place, sds_read_report *report)
{
    const sds__queue_options options = {
        .fd = file->fd,
        .alignment = 1,
        .group_bytes = plan->group_bytes,
        .depth = plan->queue_depth,
        .batch = plan->strategy == SDS_STRATEGY_LIST ? plan->regions_per_request : BATCH,
        .max_memory_bytes = plan->memory_bytes,
        .is_watched = plan->cache == SDS_CACHE_COLD && sds__may_stop(plan),
    };
    const int64_t before = report->requests;
    const sds_status status = sds__read_queue(file, access, plan, &options, place, report);
    /* Ching 2002 counts lists of regions. */
    if (plan->strategy == SDS_STRATEGY_LIST)
        report->requests =
            before + sds__divide_up(report->requests - before, plan->regions_per_request);
    return status;
}
