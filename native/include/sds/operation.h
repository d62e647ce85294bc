/* What an operation of several processes' reads touches, in a file of one or several components.
 *
 * Independent reads: each process's own, the largest of them, and their sums on every disk.
 * Collective ones: the union. Words: SEMANTICS (docs/reference/semantics.md). Liu 2014, Sec. IV.
 */
#ifndef SDS_OPERATION_H
#define SDS_OPERATION_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One regular selection per process: entry [i * rank + axis] is process i's. */
typedef struct sds_slabs {
    size_t n;
    int32_t rank;
    const int64_t *start, *stride, *count, *block;
} sds_slabs;

/* Byte ranges of n processes one after another: process i's are those from first[i] to
 * first[i + 1] - 1, sorted by offset, disjoint and not empty. */
typedef struct sds_process_extents {
    size_t n;
    const int64_t *first; /* n + 1 entries, the first 0, not falling */
    const sds_extent *extents;
} sds_process_extents;

/* A part of a file with striping of its own (Lustre's progressive file layout). Bytes are dealt by
 * their offset in the file, as if the component were the whole of it. */
typedef struct sds_component {
    int64_t begin, end;
    sds_striping striping;
    const int64_t *osts; /* stripe_count numbers: on which OST each object is; NULL: 0, 1, 2 ... */
} sds_component;

/* Components in file order, without holes, that hold every byte read. */
typedef struct sds_storage {
    size_t n_components;
    const sds_component *components;
    int64_t n_osts; /* OST numbers are below it; not read where no component names OSTs */
    sds_raid raid;
} sds_storage;

/* All exact. "Most": the largest of one process, OST or disk. A sum on a disk adds up what each
 * process touches there by itself; of a union there is nothing to add. */
typedef struct sds_operation_features {
    int64_t processes;          /* that read something */
    int64_t block_depth;        /* independent: most of one process; collective: of the union */
    int64_t block_gap_count;    /* likewise */
    int64_t block_gap_distance; /* likewise */
    int64_t block_gap_paper;    /* likewise; -1 where the union is not regular, or of extents */
    int64_t osts_touched;       /* distinct, over all processes */
    int64_t disks_touched;      /* likewise */
    int64_t runs;               /* of all processes */
    int64_t runs_most;
    int64_t segments_most; /* unbroken successions of requests of one process, over its OSTs */
    int64_t bytes_useful;  /* of all processes */
    int64_t bytes_touched; /* likewise */
    int64_t bytes_touched_most;
    int64_t ost_bytes_touched; /* most on one OST, of all processes */
    int64_t disk_blocks;       /* most on one disk, of all processes */
    int64_t disk_gap_count;    /* likewise */
    int64_t disk_gap_distance; /* likewise */
    int64_t disk_segments;     /* likewise: unbroken successions of blocks */
    int64_t disk_processes;    /* most that touch one disk */
} sds_operation_features;

typedef enum sds_io_mode { SDS_IO_INDEPENDENT = 0, SDS_IO_COLLECTIVE = 1 } sds_io_mode;

/* What is touched OST by OST, in the order of their numbers; of those that may be touched. Arrays
 * per disk have n_lanes entries for each OST: one per data disk, or a single one that stands for
 * all of them. */
typedef struct sds_ost_loads {
    int64_t n_osts;
    int64_t n_lanes;
    int64_t *ost;       /* n_osts */
    int64_t *bytes;     /* n_osts: touched, of all processes */
    int64_t *blocks;    /* per disk, of all processes */
    int64_t *segments;  /* likewise */
    int64_t *processes; /* per disk */
} sds_ost_loads;

void sds_ost_loads_free(sds_ost_loads *loads);

/* Every feature of an operation on an array stored contiguously; axes of the slabs as stored.
 * budget_ns: time after which SDS_ELIMIT is returned; <= 0: none. loads may be NULL; else it is
 * released with sds_ost_loads_free, whatever the status.
 * Errors are those of sds_runs_of and sds_features_of_runs; SDS_EINVAL also where bytes lie in no
 * component or an OST's number is out of range. */
sds_status sds_operation_of_slabs(const sds_array *array, const sds_slabs *slabs, sds_io_mode mode,
                                  const sds_storage *storage, int64_t budget_ns,
                                  sds_operation_features *out, sds_ost_loads *loads);

/* The same where the processes' byte ranges are listed. */
sds_status sds_operation_of_extents(const sds_process_extents *reads, sds_io_mode mode,
                                    const sds_storage *storage, int64_t budget_ns,
                                    sds_operation_features *out, sds_ost_loads *loads);

#ifdef __cplusplus
}
#endif
#endif
