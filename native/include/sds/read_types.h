/* The words in which reads are asked for: pieces, strategies, what a caller may bound. */
#ifndef SDS_READ_TYPES_H
#define SDS_READ_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Contiguous bytes of a file, and where they go. */
typedef struct sds_piece {
    int64_t offset;   /* in the file */
    int64_t length;   /* positive */
    int64_t position; /* in memory */
} sds_piece;

/* How a read of many runs is cut into requests. All but the first are there to compare with. */
typedef enum sds_strategy {
    SDS_STRATEGY_AUTO,     /* what is predicted to be fastest */
    SDS_STRATEGY_MULTIPLE, /* one request per run */
    SDS_STRATEGY_SIEVE,    /* conventional data sieving: the whole range, in windows */
    SDS_STRATEGY_LIST,     /* list I/O: up to regions_per_request runs per request. Ching 2002 */
    SDS_STRATEGY_PMD       /* sieving directed by a performance model. Chen 2014, Algorithms 1, 2 */
} sds_strategy;

/* Whether the page cache holds what is read. */
typedef enum sds_cache { SDS_CACHE_UNKNOWN, SDS_CACHE_WARM, SDS_CACHE_COLD } sds_cache;

/* What carries the requests of a plan out. */
typedef enum sds_executor {
    SDS_EXECUTOR_ANY,    /* no particular one */
    SDS_EXECUTOR_PREAD,  /* a call per request */
    SDS_EXECUTOR_SIEVE,  /* requests with holes, through a buffer that stays in the cache */
    SDS_EXECUTOR_VECTOR, /* preadv: runs in place, holes into a buffer */
    SDS_EXECUTOR_MAPPED, /* loads from a mapping of the file */
    SDS_EXECUTOR_LIST,   /* requests in flight at a queue depth */
    SDS_EXECUTOR_DIRECT  /* likewise, past the page cache */
} sds_executor;

/* Zeroes: the defaults. */
typedef struct sds_read_options {
    sds_strategy strategy;
    sds_cache cache;             /* UNKNOWN: look */
    sds_executor executor;       /* the one to take under AUTO, to measure it; ANY: choose */
    int32_t queue_depth;         /* requests in flight */
    int32_t regions_per_request; /* of list I/O; 64 */
    int64_t sieve_buffer_bytes;  /* of conventional sieving; 32 MiB */
    int64_t max_memory_bytes;    /* of all buffers together */
    int32_t only_cached; /* SDS_ENOENT where the page cache is found not to hold all, or does
                            not tell: the output then holds anything */
} sds_read_options;

/* How a read is carried out, known before it begins. */
typedef struct sds_read_plan {
    sds_strategy strategy;
    sds_executor executor;
    sds_cache cache;
    int64_t runs;
    int64_t requests;
    int64_t bytes_useful;
    int64_t bytes_read;     /* holes included */
    int64_t memory_bytes;   /* of buffers */
    int64_t max_hole_bytes; /* that are read along; -1: runs that touch stay apart as well */
    int64_t group_bytes;    /* bound of a request */
    int32_t queue_depth;    /* requests in flight */
    int32_t regions_per_request;
    double predicted_s;
    int64_t max_memory_bytes; /* that was asked for; 0: nothing was */
    int32_t only_cached;      /* likewise */
} sds_read_plan;

/* Sort by offset; those of equal offset keep their order. scratch: room for as many. n < 2^32. */
void sds_pieces_sort(size_t n, sds_piece pieces[], sds_piece scratch[]);

#ifdef __cplusplus
}
#endif
#endif
