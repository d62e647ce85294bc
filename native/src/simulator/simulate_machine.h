/* A simulator's parameters in the units in which it computes: nanoseconds, and bytes and cells of
 * disks. Internal. */
#ifndef SDS_SIMULATE_MACHINE_H
#define SDS_SIMULATE_MACHINE_H

#include "sds/simulator.h"

/* Nanoseconds per byte, in 2^-32. */
typedef uint64_t sds__pace;

/* Disks are dealt blocks of the object in turn. Where every access is widened to whole rows, all
 * disks of an OST do the same at the same time: one of them is followed and stands for all. */
typedef struct sds__machine {
    sds_simulator_parameters given;
    int64_t n_disks;    /* of an OST that are followed */
    int64_t stands_for; /* data disks, each of them */
    int64_t cell_bytes; /* of one disk: read together, remembered together */

    int64_t client_request_ns;
    int64_t latency_ns;
    int64_t ost_request_ns;
    int64_t disk_request_ns;
    int64_t half_revolution_ns;
    int64_t settle_ns;
    int64_t first_ns; /* before the first access of a disk */
    double stroke_ns; /* longest seek less the shortest, over the root of the capacity */
    int64_t shuffle_message_ns;
    sds__pace client_pace;
    sds__pace ost_pace;
    sds__pace disk_pace;
    sds__pace shuffle_pace;
} sds__machine;

/* SDS_EINVAL where a parameter is out of range. */
sds_status sds__machine_of(const sds_simulator_parameters *parameters, int is_request_by_request,
                           sds__machine *out);

/* Time for a number of bytes; SDS_SIMULATOR_MAX_NS where it is longer. */
static inline int64_t sds__transfer_ns(sds__pace pace, int64_t n_bytes)
{
    const unsigned __int128 ns = ((unsigned __int128)pace * (uint64_t)n_bytes) >> 32;
    return ns < (unsigned __int128)SDS_SIMULATOR_MAX_NS ? (int64_t)ns : SDS_SIMULATOR_MAX_NS;
}

/* count times cost, likewise. */
static inline int64_t sds__times_ns(int64_t count, int64_t cost_ns)
{
    int64_t ns;
    if (__builtin_mul_overflow(count, cost_ns, &ns) || ns > SDS_SIMULATOR_MAX_NS)
        return SDS_SIMULATOR_MAX_NS;
    return ns;
}

/* a + b, likewise; both are at most SDS_SIMULATOR_MAX_NS. */
static inline int64_t sds__plus_ns(int64_t a, int64_t b)
{
    return a + b < SDS_SIMULATOR_MAX_NS ? a + b : SDS_SIMULATOR_MAX_NS;
}

/* From where the head stands to where it shall read, in bytes of the disk: reading through, or a
 * seek and half a revolution; *is_seek tells which. */
int64_t sds__positioning_ns(const sds__machine *machine, int64_t from, int64_t to, int *is_seek);

/* The part of a range [low, high), dealt in units over n places in turn, that place i gets: a range
 * [*from, *to) again, of the place's own bytes. Return 0 where it gets nothing. */
int sds__deal(int64_t low, int64_t high, int64_t unit, int64_t n, int64_t i, int64_t *from,
              int64_t *to);

#endif
