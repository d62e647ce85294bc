/* Reads the runs of a selection from a file, without HDF5.
 *
 * Runs whose gaps are small are read together through a bounded sieve buffer and picked apart;
 * the others are read one by one. Retries EINTR and short reads. */
#ifndef SDS_READ_ENGINE_H
#define SDS_READ_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sds_read_options {
    int64_t max_gap_bytes;      /* gaps up to this are read and thrown away; 0: default */
    int64_t sieve_buffer_bytes; /* bound of the one buffer that is allocated; 0: default */
} sds_read_options;

typedef struct sds_read_report {
    int64_t requests;   /* pread calls that were planned */
    int64_t bytes_read; /* read from the file, holes included */
} sds_read_report;

/* Read all runs, in file order and packed, into out (sds_runs_bytes bytes).
 * SDS_ESHORT: the file ends before the data; SDS_EIO: errno is set; SDS_ENOMEM.
 * options and report may be NULL. */
sds_status sds_read_runs(int fd, const sds_runs *runs, const sds_read_options *options, void *out,
                         sds_read_report *report);

#ifdef __cplusplus
}
#endif
#endif
