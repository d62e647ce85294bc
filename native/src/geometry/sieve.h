/* How HDF5 reads a dataset stored contiguously: through its sieve buffer, and what that takes. */
#ifndef SDS_SIEVE_H
#define SDS_SIEVE_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"
#include "sds/io_model.h"

/* What lies within a page is one request in any case. */
#define SDS__PAGE_BYTES 4096

/* Counted as HDF5 does it (H5Dcontig.c): a piece longer than the buffer is read by itself; a piece
 * that the buffer does not hold whole fills it from the piece's begin on. The buffer is taken to
 * be empty before, and never cut by the end of the dataset. A request that begins no more than
 * near_bytes after the one before is no jump: the kernel reads ahead.
 *
 * Costs as many steps as there are different states of the buffer at the begins of rows: mostly
 * one to a few. After max_steps the rest of each level is taken to be like what was seen of it,
 * and false is returned. */
int sds__sieve_count(const sds_runs *runs, int64_t buffer_bytes, int64_t near_bytes,
                     int64_t max_steps, sds_sieve *out);

/* A read of contiguous data by HDF5. */
typedef struct sds__sieved {
    int64_t buffer_bytes;
    double runs;
    double requests;
    double bytes;    /* read from the file */
    double startups; /* requests that do not begin where the one before ended, or soon after */
} sds__sieved;

void sds__sieve_runs(const sds_runs *runs, int64_t buffer_bytes, sds__sieved *out);

/* The same of extents in the order in which HDF5 reads them, in units; the whole read is a number
 * of times as long. */
void sds__sieve_extents(size_t n, const sds_extent extents[], int64_t unit_bytes,
                        int64_t buffer_bytes, double factor, sds__sieved *out);

/* Seconds with everything in the processor's caches, in memory, and on the device. */
double sds__sieved_hot_s(const sds__sieved *read, const sds_io_parameters *costs);
double sds__sieved_warm_s(const sds__sieved *read, const sds_io_parameters *costs);
double sds__sieved_cold_s(const sds__sieved *read, const sds_io_parameters *costs);

/* The mean of a loop of such reads that begins with nothing in memory. */
double sds__sieved_walk_s(const sds__sieved *read, const sds_io_parameters *costs,
                          int64_t dataset_bytes);

#endif
