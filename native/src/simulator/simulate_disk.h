/* A disk of the simulator: an elevator in front of a head, and the server's memory of what has
 * been read. Places are cells, counted from the start of the object's part on this disk. Internal.
 */
#ifndef SDS_SIMULATE_DISK_H
#define SDS_SIMULATE_DISK_H

#include <stddef.h>

#include "simulate_machine.h"

/* A block takes 4 KiB and remembers 2^15 cells: at most 1 GiB, of which each cell of 512 bytes on
 * one of eight disks in step stands for 4 KiB. */
#define SDS__MAX_BLOCKS (INT64_C(1) << 18)

/* Cells [low, high) that a message waits for. */
typedef struct sds__wanted {
    int64_t low;
    int64_t high;
    int64_t arrived_ns; /* 0 where that does not matter */
    int64_t process;    /* whose it is, and its first byte: the order of what is equal otherwise */
    int64_t first_byte;
    int32_t message;
} sds__wanted;

/* A heap, least (low, high, process, first byte) first; of one place what arrived last. */
typedef struct sds__wanted_heap {
    size_t n;
    size_t room;
    sds__wanted *wanted;
} sds__wanted_heap;

/* Cells that have been read: bits, in blocks that are made with the first need. */
typedef struct sds__cells_read {
    size_t n_blocks;
    uint64_t **block;
    int64_t *blocks_left; /* that may still be made, by all disks together */
} sds__cells_read;

typedef struct sds__disk {
    /* C-LOOK: upwards from where it last began to read, then again from the lowest. */
    sds__wanted_heap ahead;
    sds__wanted_heap behind;
    int64_t swept;
    sds__cells_read read;
    int64_t head; /* cell before which it stands; -1: not known */
    int64_t busy_ns;
    int32_t is_busy;
    sds__wanted now; /* what it reads for, while it is busy */
    int64_t reading_low;
    int64_t reading_high;
} sds__disk;

/* blocks_left: for all disks of a simulation, SDS__MAX_BLOCKS at its start. */
void sds__disk_init(sds__disk *disk, int64_t *blocks_left);
void sds__disk_free(sds__disk *disk);

/* SDS_ENOMEM. */
sds_status sds__disk_want(sds__disk *disk, const sds__wanted *wanted);

/* Take the next in the elevator's order; 0: nothing is wanted. */
int sds__disk_next(sds__disk *disk, sds__wanted *out);

/* Likewise, where the elevator goes upwards from where the head stands. SDS_ENOMEM. */
sds_status sds__disk_next_ahead(sds__disk *disk, sds__wanted *out, int *is_any);

/* Whether the last request of the disk has read all of it. */
static inline int sds__disk_has_just_read(const sds__disk *disk, const sds__wanted *wanted)
{
    return disk->head >= 0 && wanted->low >= disk->reading_low && wanted->high <= disk->head;
}

/* From the first cell to the last of [low, high) that are not in memory; 0: all are. */
int sds__cells_missing(const sds__cells_read *read, int64_t low, int64_t high, int64_t *first,
                       int64_t *last);

/* Remember that [low, high) is in memory. SDS_ENOMEM; SDS_ELIMIT where that is too much. */
sds_status sds__cells_mark(sds__cells_read *read, int64_t low, int64_t high);

#endif
