/* How a read of many runs is cut into requests, and what carries them out: decided from the shape
 * of the read and from measured costs alone, before anything is read.
 *
 * Of a regular read nothing is walked: a plan takes about a microsecond whatever its size. A list
 * of pieces is walked a few times.
 */
#ifndef SDS_READ_PLAN_H
#define SDS_READ_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"
#include "sds/io_model.h"
#include "sds/read_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ching 2002: what the frame of a network describes, and the buffer of conventional sieving. */
#define SDS_REGIONS_PER_REQUEST 64
#define SDS_SIEVE_BUFFER_BYTES (INT64_C(32) << 20)

/* What is known of a file and of the process that reads it. */
typedef struct sds_plan_given {
    sds_cache cache;           /* UNKNOWN: planned as cold */
    int32_t may_map;           /* MAPPED is possible */
    int32_t is_mapped;         /* it was mapped and loaded from before */
    int32_t may_queue;         /* LIST is possible */
    int32_t may_read_directly; /* DIRECT is possible */
    int64_t cache_room_bytes;  /* that the page cache can take; 0: all */
} sds_plan_given;

/* Plan a regular read. parameters NULL: built in; options NULL: all default; given NULL: nothing is
 * known, and only calls are possible.
 * SDS_EINVAL: runs that overlap, a negative number, an unknown strategy or invalid parameters;
 * SDS_EOVERFLOW. */
sds_status sds_plan_runs(const sds_runs *runs, const sds_io_parameters *parameters,
                         const sds_read_options *options, const sds_plan_given *given,
                         sds_read_plan *out);

/* The same for n pieces, sorted by offset (else SDS_EINVAL). */
sds_status sds_plan_pieces(size_t n, const sds_piece pieces[], const sds_io_parameters *parameters,
                           const sds_read_options *options, const sds_plan_given *given,
                           sds_read_plan *out);

/* "auto", "multiple", ...; NULL where there is none such. */
const char *sds_strategy_name(sds_strategy strategy);
const char *sds_executor_name(sds_executor executor);
const char *sds_cache_name(sds_cache cache);

#ifdef __cplusplus
}
#endif
#endif
