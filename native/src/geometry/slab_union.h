/* Regular selections of one array, united where the union of two is regular again. Internal.
 *
 * The parts of a decomposition come back together, so that what several processes read at once
 * is mostly one selection however many there are.
 */
#ifndef SDS_SLAB_UNION_H
#define SDS_SLAB_UNION_H

#include <stddef.h>
#include <stdint.h>

#include "deadline.h"
#include "sds/geometry.h"

/* One axis of a selection in one form per set of indices: stride 1 and block 1 where they are
 * neighbours, else block < stride and count >= 2. */
typedef struct sds__axis {
    int64_t start, stride, count, block;
} sds__axis;

/* Bring an axis into that form; count 0 where nothing is selected. */
sds__axis sds__axis_of(int64_t start, int64_t stride, int64_t count, int64_t block);

/* Unite n > 0 selections that are not empty, rows[i * rank + axis] each, in place; the number that
 * is left. Their union stays the same; two that are left may overlap. It may take a time that grows
 * with n * n: SDS_ELIMIT once the deadline passes. */
sds_status sds__unite_slabs(int32_t rank, size_t n, sds__axis rows[], sds__deadline *deadline,
                            size_t *left);

#endif
