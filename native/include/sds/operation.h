/* What an operation of several processes' reads touches.
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

/* Every feature of an operation on an array stored contiguously; axes of the slabs as stored.
 * budget_ns: time after which SDS_ELIMIT is returned; <= 0: none.
 * Errors are those of sds_runs_of and sds_features_of_runs. */
sds_status sds_operation_of_slabs(const sds_array *array, const sds_slabs *slabs, sds_io_mode mode,
                                  const sds_striping *striping, const sds_raid *raid,
                                  int64_t budget_ns, sds_operation_features *out);

/* The same where the processes' byte ranges are listed. */
sds_status sds_operation_of_extents(const sds_process_extents *reads, sds_io_mode mode,
                                    const sds_striping *striping, const sds_raid *raid,
                                    int64_t budget_ns, sds_operation_features *out);

#ifdef __cplusplus
}
#endif
#endif
