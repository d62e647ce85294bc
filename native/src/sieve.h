/* What HDF5 reads of a file to read a selection of a dataset stored contiguously. */
#ifndef SDS_SIEVE_H
#define SDS_SIEVE_H

#include <stdint.h>

#include "sds/geometry.h"

/* HDF5's default. */
#define SDS__SIEVE_BYTES 65536

/* Counted as HDF5 does it (H5Dcontig.c): a piece longer than the buffer is read by itself; a piece
 * that the buffer does not hold whole fills it from the piece's begin on. The buffer is taken to
 * be empty before, and never cut by the end of the dataset.
 *
 * Costs as many steps as there are different states of the buffer at the begins of rows: mostly
 * one to a few. After max_steps the rest of each level is taken to be like what was seen of it,
 * and false is returned. */
int sds__sieve_count(const sds_runs *runs, int64_t max_steps, sds_sieve *out);

#endif
