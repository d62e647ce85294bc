/* What a candidate of a redirect table holds of its dataset, and where. */
#ifndef SDS_CANDIDATE_H
#define SDS_CANDIDATE_H

#include <stdint.h>

#include "sds/geometry.h"
#include "sds/status.h"
#include "sds/table_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most bytes of a contiguous replica besides its dataset: all of them are checked before it serves.
 */
#define SDS_MAX_METADATA_BYTES (INT64_C(1) << 20)

/* Whether the candidate holds all that is selected of the source: in its region, and in its tiles
 * where it has some. */
int sds_candidate_holds(const sds_candidate *candidate, const sds_hyperslab *slab);

/* Whether it holds less than the source. */
int sds_candidate_is_partial(const sds_candidate *candidate, const sds_table_dataset *dataset);

/* A selection of the source that the candidate holds, in the replica's own axes. Of one without
 * tiles, as sds_candidate_array; of one with tiles, sds/tiles.h has both for each piece. */
sds_status sds_candidate_slab(const sds_candidate *candidate, const sds_hyperslab *slab,
                              sds_hyperslab *out);

/* The array that the candidate stores: the box's axes in its order. */
void sds_candidate_array(const sds_candidate *candidate, const sds_table_dataset *dataset,
                         sds_array *out);

/* Bytes of the replica's dataset. */
int64_t sds_candidate_bytes(const sds_candidate *candidate, const sds_table_dataset *dataset);

/* Whether a selection of so many indices per replica axis has its elements in the order of the
 * source. */
int sds_candidate_keeps_order(const sds_candidate *candidate, const int64_t shape[]);

#ifdef __cplusplus
}
#endif
#endif
