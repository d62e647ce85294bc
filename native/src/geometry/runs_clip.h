/* The part of a selection that lies in a range of the file. Internal. */
#ifndef SDS_RUNS_CLIP_H
#define SDS_RUNS_CLIP_H

#include "sds/geometry.h"

/* Offset behind the last byte. */
int64_t sds__runs_end(const sds_runs *runs);

/* Receives runs; return other than SDS_OK to stop. */
typedef sds_status sds__runs_visitor(void *context, const sds_runs *runs);

/* Visit what lies in [begin, end) in file order, as at most two runs per level and one more. */
sds_status sds__runs_clip(const sds_runs *runs, int64_t begin, int64_t end,
                          sds__runs_visitor *visit, void *context);

#endif
