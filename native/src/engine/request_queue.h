/* The groups of a plan, read with many requests in flight. Internal. */
#ifndef SDS_REQUEST_QUEUE_H
#define SDS_REQUEST_QUEUE_H

#include "exec.h"

typedef struct sds__queue_options {
    int fd;            /* to read from */
    int64_t alignment; /* of offsets, lengths and memory; 1: any, and groups without holes go where
                          they belong without a copy */
    int64_t group_bytes;
    int32_t depth;            /* requests in flight */
    int32_t batch;            /* requests told to the kernel at once */
    int64_t max_memory_bytes; /* of all buffers, where one is not longer */
    int is_watched;           /* stop where the page cache turns out to hold what is read */
} sds__queue_options;

/* Through io_uring, or else by threads that are gone when it returns. */
sds_status sds__read_queue(sds_file *file, const sds__access *access, const sds_read_plan *plan,
                           const sds__queue_options *options, sds__place *place,
                           sds_read_report *report);

#endif
