/* What several processes' reads touch, added up per OST and disk. Internal. */
#ifndef SDS_DISK_SUMS_H
#define SDS_DISK_SUMS_H

#include "sds/operation.h"
#include "touched.h"

/* Of one disk, or of every disk of an OST where one stands for all. */
typedef struct sds__disk_sum {
    int64_t blocks;   /* counted in rows where one disk stands for all */
    int64_t gaps;     /* holes between blocks */
    int64_t missing;  /* blocks in the holes, counted alike */
    int64_t segments; /* unbroken successions of blocks */
    int64_t processes;
} sds__disk_sum;

typedef struct sds__disk_sums {
    const sds__disk_map *map;
    int64_t *requests;    /* n_slots */
    sds__disk_sum *disks; /* n_slots * n_lanes */
    int overflow;         /* a sum did not fit */
} sds__disk_sums;

/* All zero. SDS_ENOMEM. Free with sds__disk_sums_free. */
sds_status sds__disk_sums_init(sds__disk_sums *sums, const sds__disk_map *map);

void sds__disk_sums_free(sds__disk_sums *sums);

/* Add what one process touches: a set, moved by a multiple of map->symmetry_bytes that keeps it
 * within the map. */
void sds__disk_sums_add(sds__disk_sums *sums, const sds__touched *touched, int64_t move_bytes);

/* Set what follows from the sums: distinct OSTs and disks, and the most on one of them.
 * SDS_EOVERFLOW. */
sds_status sds__disk_sums_features(const sds__disk_sums *sums, sds_operation_features *out);

#endif
