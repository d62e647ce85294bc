/* Which byte of a selection lies where: the n-th selected byte, and how many lie below an offset.
 * In steps of the levels, not of the runs. Internal. */
#ifndef SDS_RUN_RANK_H
#define SDS_RUN_RANK_H

#include "sds/geometry.h"

typedef struct sds__ranked {
    const sds_runs *runs;
    int64_t n_bytes;                       /* selected */
    int64_t inner_bytes[2 * SDS_MAX_RANK]; /* selected within one step of each level */
} sds__ranked;

void sds__ranked_of(const sds_runs *runs, sds__ranked *out);

/* Selected bytes before this offset of the file. */
int64_t sds__bytes_below(const sds__ranked *ranked, int64_t offset);

/* The file's offset of selected byte number rank: 0 <= rank < n_bytes. */
int64_t sds__offset_of(const sds__ranked *ranked, int64_t rank);

#endif
