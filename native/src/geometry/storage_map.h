/* Components of a file on OSTs and disks, what one read touches of them, and sums over reads.
 * Internal.
 */
#ifndef SDS_STORAGE_MAP_H
#define SDS_STORAGE_MAP_H

#include "deadline.h"
#include "sds/operation.h"
#include "touched.h"

/* A component as far as reads reach into it. */
typedef struct sds__place {
    int64_t begin, end;
    const int64_t *osts; /* as in sds_component */
    int repeats;         /* 1: several of its objects may be on one OST */
    sds__disk_map map;
    sds__touched touched; /* by the read that is added up at present */
} sds__place;

/* Of one disk, or of every disk of an OST where one stands for all. */
typedef struct sds__disk_sum {
    int64_t blocks;   /* counted in rows where one disk stands for all */
    int64_t gaps;     /* holes between blocks */
    int64_t missing;  /* blocks in the holes, counted alike */
    int64_t segments; /* unbroken successions of blocks */
    int64_t processes;
} sds__disk_sum;

typedef struct sds__disk_sums {
    int64_t *requests;    /* n_osts */
    sds__disk_sum *disks; /* n_osts * n_lanes */
    int overflow;         /* a sum did not fit */
} sds__disk_sums;

typedef struct sds__storage_map {
    size_t n_places; /* in file order */
    sds__place *places;
    sds__line *lines;      /* of the places' sets */
    int64_t n_osts;        /* that sums are kept of */
    int64_t n_lanes;       /* disks of each that are told apart: as in sds__disk_map */
    int32_t names_osts;    /* 0: one place, whose slots are the OSTs */
    sds__disk_sums read;   /* of one read */
    sds__disk_sums totals; /* of all processes */
} sds__storage_map;

/* Map for reads within [begin, end), nothing touched. Free with sds__storage_map_free, whatever
 * the status. */
sds_status sds__storage_map_init(sds__storage_map *map, const sds_storage *storage, int64_t begin,
                                 int64_t end);

void sds__storage_map_free(sds__storage_map *map);

/* The place that holds a range whole, and whose OSTs have one object each; NULL: none. */
const sds__place *sds__storage_map_place(const sds__storage_map *map, int64_t begin, int64_t end);

/* Begin another read. */
void sds__storage_map_clear(sds__storage_map *map);

/* Add file range [begin, end), which lies after everything added since the last clearing. */
void sds__storage_map_add(sds__storage_map *map, int64_t begin, int64_t end);

/* Add runs that lie after everything added since the last clearing. SDS_ELIMIT once the deadline
 * has passed. */
sds_status sds__storage_map_add_runs(sds__storage_map *map, const sds_runs *runs,
                                     sds__deadline *deadline);

/* Features of the read that was added: what it touches, on every disk over all components. */
sds_status sds__storage_map_features(sds__storage_map *map, sds_features *out);

/* Add the read, as one process's, to the totals; its features were asked for before. */
void sds__storage_map_count(sds__storage_map *map);

/* Add a read that is the one added, in one place, moved by a multiple of the place's
 * symmetry_bytes, to the totals. */
void sds__storage_map_count_moved(sds__storage_map *map, const sds__place *place,
                                  int64_t move_bytes);

/* Set what follows from the totals: distinct OSTs and disks, and the most on one of them. */
sds_status sds__storage_map_totals(const sds__storage_map *map, sds_operation_features *out);

/* The totals OST by OST. */
sds_status sds__storage_map_loads(const sds__storage_map *map, sds_ost_loads *out);

#endif
