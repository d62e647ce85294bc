/* Reads the runs of a selection from a file, without HDF5.
 *
 * Plans how (sds/read_plan.h), and carries it out: by calls, through a small sieve, from a mapping,
 * or with many requests in flight. The right bytes or a status: EINTR and short reads are retried,
 * and nothing writes to the output once a function has returned. */
#ifndef SDS_READ_ENGINE_H
#define SDS_READ_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "sds/geometry.h"
#include "sds/read_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sds_blocks;
struct sds_io_parameters;

/* A file to read from: what is kept between reads of it. Several threads may use one at once, and
 * a child after fork. */
typedef struct sds_file sds_file;

typedef struct sds_file_options {
    /* To open the file once more, past the page cache; the descriptor is kept until
     * sds_file_close(), which drops the POSIX locks that this process has on the file. NULL: the
     * file is not opened again. */
    const char *path;
    const struct sds_io_parameters *parameters; /* of its file system; NULL: built in */
    /* Whether it may be read from a mapping, for which a handler of SIGBUS is installed with the
     * first need: docs/explanation/signals.md. */
    int may_map;
    /* Checks what is read: a read of what is damaged is SDS_EFORMAT. NULL: nothing does. */
    struct sds_blocks *blocks;
} sds_file_options;

/* What kept several requests in flight. */
typedef enum sds_queue {
    SDS_QUEUE_NONE,   /* one was made after the other */
    SDS_QUEUE_RING,   /* io_uring */
    SDS_QUEUE_THREADS /* where the kernel refuses that, or gave up; two of them: many calls that
                         find everything cached */
} sds_queue;

typedef struct sds_read_report {
    sds_read_plan plan; /* that ran; of several, the last */
    sds_cache cache;    /* what was found */
    sds_queue queue;    /* of LIST, DIRECT and PREAD; of several, the last */
    int64_t requests;   /* that were made */
    int64_t bytes_read; /* from the file, holes included */
} sds_read_report;

/* Ranges up to this length are announced whole. Of longer ones the kernel reads larger pages by
 * itself than of what is announced, which is up to twice as fast. */
#define SDS_ANNOUNCED_BYTES (INT64_C(16) << 20)

/* Have the kernel begin to read a range that one read is about to ask for, so that the device works
 * while something else has to be done first, such as checks of the file. Only a hint: nothing where
 * the range is cached, short, or so long that it may be read past the page cache. */
void sds_announce_range(int fd, int64_t offset_bytes, int64_t n_bytes);

/* Have the kernel begin to read a range of which a part was not cached when it was read, and the
 * rest is expected to be asked for. Only a hint, for at most SDS_ANNOUNCED_BYTES of it. */
void sds_announce_rest(sds_file *file, int64_t offset_bytes, int64_t n_bytes);

/* The descriptor stays the caller's, and open until sds_file_close(). Costs an allocation: what
 * reads need besides is made when one needs it. options may be NULL: nothing is kept. */
sds_status sds_file_open(int fd, const sds_file_options *options, sds_file **out);

/* No read may be under way. NULL: nothing. Until then a mapping keeps what the descriptor's flock()
 * locked locked, also where the descriptor is closed before. */
void sds_file_close(sds_file *file);

/* What plans of reads of it may be made of, where the cache is not looked at. */
void sds_file_given(sds_file *file, sds_plan_given *out);

/* Whether what a read asks for is cached: of few runs one byte is looked at, of many eight. Takes a
 * few microseconds. UNKNOWN: the file system cannot tell, or there are no runs. */
sds_cache sds_probe_runs(sds_file *file, const sds_runs *runs);
sds_cache sds_probe_pieces(sds_file *file, size_t n, const sds_piece pieces[]);

/* Read all runs, in file order and packed, into out (sds_runs_bytes bytes).
 * SDS_ESHORT: the file ends before the data; SDS_EIO: errno is set; SDS_ENOMEM; SDS_EINVAL;
 * SDS_EOVERFLOW; SDS_EFORMAT: it is damaged (sds_file_options.blocks). options and report may be
 * NULL. */
sds_status sds_read_runs(sds_file *file, const sds_runs *runs, const sds_read_options *options,
                         void *out, sds_read_report *report);

/* Read n pieces, sorted by offset (SDS_EINVAL if not). They may overlap in the file, not in
 * memory. */
sds_status sds_read_pieces(sds_file *file, size_t n, const sds_piece pieces[],
                           const sds_read_options *options, void *out, sds_read_report *report);

/* "none", "ring", "threads"; NULL where there is none such. */
const char *sds_queue_name(sds_queue queue);

#ifdef __cplusplus
}
#endif
#endif
