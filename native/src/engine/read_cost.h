/* How long a plan takes. Internal. The model: docs/explanation/reads.md. */
#ifndef SDS_READ_COST_H
#define SDS_READ_COST_H

#include "arithmetic.h"
#include "read_shape.h"
#include "sds/read_plan.h"

/* At either end of a request past the page cache. */
#define SDS__DIRECT_ALIGNMENT INT64_C(4096)

/* Buffers past the page cache take whole pages of this size, where that adds little: a device is
 * told of pieces of memory, and each takes its time. */
#define SDS__HUGE_PAGE_BYTES (INT64_C(2) << 20)
#define SDS__LEAST_HUGE_BYTES (SDS__HUGE_PAGE_BYTES / 4 * 3)

static inline int64_t sds__huge_bytes(int64_t n)
{
    return n < SDS__LEAST_HUGE_BYTES
               ? n
               : sds__divide_up(n, SDS__HUGE_PAGE_BYTES) * SDS__HUGE_PAGE_BYTES;
}

/* From this length on the buffer of a sieve does not stay in a second-level cache. */
#define SDS__LARGE_BUFFER_BYTES (INT64_C(4) << 20)

/* What the kernel takes for the next part of a stream, and reads ahead. */
#define SDS__STREAM_HOLE_BYTES INT64_C(4095)

/* Those that predictions count at, besides a plan's own. */
void sds__add_cost_bounds(sds__hole_census *census);

/* Of one request more, one at a time, as this process sees it: what p and n do to it is in the
 * measured figure. */
double sds__startup_s(const sds_io_parameters *costs);

/* Of a byte, likewise. */
double sds__streamed_s_per_byte(const sds_io_parameters *costs);

/* Of a byte of requests in flight that are close to each other: the kernel reads ahead for each of
 * them, and they gain nothing over a stream. */
double sds__merged_s_per_byte(const sds_io_parameters *costs);

/* Of one request more at this depth of the queue. */
double sds__queued_startup_s(const sds_io_parameters *costs, int32_t depth);

/* Seconds of a plan that makes these requests. is_mapped: the file was mapped and loaded from
 * before. A cache that is not known to be warm is taken to be cold. */
double sds__predict_s(const sds__read_shape *shape, const sds_io_parameters *costs, int is_mapped,
                      const sds_read_plan *plan, const sds__group_totals *totals);

#endif
