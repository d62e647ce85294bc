/* What requests cost: the model that decides which holes are worth reading.
 *
 * Two models stand side by side. Chen 2014's, as published, with all its symbols: it directs the
 * strategy "pmd", and its figures can be checked. And SDS's own, by which the strategy "auto"
 * compares the ways there are to read: what one more request costs while others are in flight, and
 * what a byte costs, as measured where the program runs (docs/explanation/reads.md).
 */
#ifndef SDS_IO_MODEL_H
#define SDS_IO_MODEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Chen 2014, Table 1; the symbol is named where the field is not called by it. Seconds, bytes. */
typedef struct sds_pmd_costs {
    double te_s;           /* to establish a connection with one storage node */
    double tt_s_per_byte;  /* network */
    double startup_s;      /* s: seek and system call */
    double cud_s_per_byte; /* storage */
    double lqdep_s;        /* of outstanding requests */
} sds_pmd_costs;

/* Of a file system, as one process sees it. */
typedef struct sds_io_parameters {
    sds_pmd_costs reads;
    sds_pmd_costs writes;
    double clients; /* p: processes that read at the same time */
    double nodes;   /* n: storage nodes */

    /* Cold: from the device. */
    double queued_startup_s;    /* of one request more where queue_depth are in flight */
    double queue_setup_s;       /* once, before the first of them */
    double buffered_s_per_byte; /* through the page cache, with several in flight */
    double direct_s_per_byte;   /* past it, likewise */
    double direct_setup_s;
    int64_t direct_min_bytes; /* from this on reading past the page cache is considered */
    int32_t queue_depth;
    int32_t is_measured; /* 0: built in */

    /* Warm: from the page cache. */
    double call_s;                 /* a system call that reads next to nothing */
    double copy_s_per_byte;        /* by a call into memory that is in no cache */
    double cached_copy_s_per_byte; /* into a buffer that stays in the second-level cache, and out */
    double vector_s;               /* of one piece and one hole more in a vectored call */
    double hole_s_per_byte;        /* of a vectored call, into the same small buffer again */
    double pick_s;                 /* to pick a piece from a buffer */

    /* Warm: from a mapping. */
    double map_s;             /* to make it, and to drop it in the end */
    double guard_s;           /* of a read from it: to be able to survive a file that shrinks */
    double table_s;           /* first load from 2 MiB of it */
    double touch_s;           /* first load from 64 KiB of it */
    double load_s;            /* of a page that was loaded from before, and is in no cache */
    double loaded_s_per_byte; /* 64 bytes at a time */
} sds_io_parameters;

/* Of a small machine with a virtual solid-state disk: what serves until a file system is measured.
 */
void sds_io_parameters_builtin(sds_io_parameters *out);

/* The costs that Chen 2014 measured: a cluster with solid-state disks and Gigabit Ethernet. */
void sds_pmd_costs_chen2014(sds_pmd_costs *reads, sds_pmd_costs *writes);

/* Whether every cost is finite and not negative, and p, n and queue_depth are at least 1. */
int sds_io_parameters_are_valid(const sds_io_parameters *parameters);

/* Chen 2014, Table 2: seconds that a request of that size takes where clients processes read
 * at the same time from nodes storage nodes:
 * T = te*p + tt*size/n + p*s + size*cud/n + lqdep */
double sds_pmd_time_s(const sds_pmd_costs *costs, double clients, double nodes, double bytes);

/* The hole that costs as much to read as the start-up it saves: (te*p + p*s + lqdep) * n / (tt +
 * cud); infinite where bytes cost nothing. */
double sds_pmd_break_even_bytes(const sds_pmd_costs *costs, double clients, double nodes);

/* Chen 2014, Algorithm 1: whether two requests with this hole between them become one. */
int sds_pmd_merges(const sds_pmd_costs *costs, double clients, double nodes, int64_t hole_bytes);

/* The largest hole that sds_pmd_merges() accepts; -1: none. */
int64_t sds_pmd_max_hole(const sds_pmd_costs *costs, double clients, double nodes);

/* The simpler rule that Chen 2014, Sec. 3.1 names: sieve where what is requested is more than twice
 * the holes. */
int sds_ratio_rule_sieves(int64_t bytes_useful, int64_t bytes_of_holes);

#ifdef __cplusplus
}
#endif
#endif
