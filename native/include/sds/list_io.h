/* List I/O: many regions of a file to or from many regions of memory, in one call.
 *
 * Both lists name bytes one region after the other. The first byte that the one names belongs to
 * the first that the other names, and so on: the lists may be cut differently, in any order, and
 * zero lengths are allowed. Ching 2002, Sec. 3.3.
 */
#ifndef SDS_LIST_IO_H
#define SDS_LIST_IO_H

#include <stddef.h>
#include <stdint.h>

#include "sds/read_engine.h"
#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Regions of a file, or of memory from some address on. */
typedef struct sds_regions {
    size_t n;
    const int64_t *offsets; /* bytes, >= 0 */
    const int64_t *lengths; /* bytes, >= 0; NULL: length, of each */
    int64_t length;
} sds_regions;

/* What two lists ask for. */
typedef struct sds_list {
    sds_regions in_file;
    sds_regions in_memory;
    int is_packed;        /* 1: in_memory is not looked at; the bytes lie in memory in the order of
                             the file's regions, from its first byte on */
    int64_t memory_bytes; /* its size; a region outside is refused */
} sds_list;

typedef enum sds_list_rule {
    SDS_LIST_NEGATIVE,       /* an offset or a length is: SDS_EINVAL */
    SDS_LIST_TOO_FAR,        /* a region, or the sum of all, ends beyond 2^63: SDS_EOVERFLOW */
    SDS_LIST_OUTSIDE_MEMORY, /* SDS_EINVAL */
    SDS_LIST_SUMS_DIFFER,    /* SDS_EINVAL */
    SDS_LIST_OUTSIDE_FILE,   /* the file ends before the end of a region: SDS_ESHORT */
    SDS_LIST_APPENDS         /* the descriptor was opened with O_APPEND: SDS_EINVAL */
} sds_list_rule;

/* Why lists were refused. Set where one of the statuses above is returned before anything was
 * read or written; else is_set is 0. */
typedef struct sds_list_fault {
    int is_set;
    sds_list_rule rule;
    int is_in_memory; /* the region is of that list */
    size_t region;    /* its index, offset and length */
    int64_t offset;
    int64_t length;
    int64_t file_bytes; /* that the lists name, where the sums differ; else the file's size */
    int64_t memory_bytes;
} sds_list_fault;

/* Which side of a list is written to: later regions win where its regions overlap. */
typedef enum sds_list_target { SDS_LIST_INTO_MEMORY, SDS_LIST_INTO_FILE } sds_list_target;

/* Find the pieces of two lists: sorted by offset in the file, neighbours joined, disjoint in the
 * target. *pieces is the caller's, to be freed with free(); NULL where *n is 0. Pure: no file is
 * looked at. 10 to 50 ns a region, more
 * where regions of the target overlap.
 * SDS_EINVAL, SDS_EOVERFLOW: see fault, which may be NULL; SDS_ELIMIT: more than 2^31 regions;
 * SDS_ENOMEM. */
sds_status sds_list_pieces(const sds_list *list, sds_list_target target, size_t *n,
                           sds_piece **pieces, sds_list_fault *fault);

/* Read. What memory holds then is what reading the regions one after the other, in the order of the
 * lists, would leave there; bytes outside of its regions are not touched.
 * SDS_EINVAL, SDS_EOVERFLOW, SDS_ESHORT: see fault; where it is set nothing was read and memory is
 * as it was. SDS_ESHORT without a fault: the file became shorter meanwhile; SDS_EIO: errno is set;
 * SDS_ENOMEM. The bytes of the regions in memory are then undefined, and no other byte is touched.
 * options, report and fault may be NULL. */
sds_status sds_read_list(sds_file *file, const sds_list *list, void *memory,
                         const sds_read_options *options, sds_read_report *report,
                         sds_list_fault *fault);

/* The same of a descriptor, of whose file nothing is known and nothing is kept. */
sds_status sds_read_list_of(int fd, const sds_list *list, void *memory,
                            const sds_read_options *options, sds_read_report *report,
                            sds_list_fault *fault);

typedef struct sds_write_report {
    int64_t pieces;        /* of file and memory, after both lists were cut and joined */
    int64_t requests;      /* system calls that were planned */
    int64_t bytes_written; /* so far, where the write failed */
    int64_t memory_bytes;  /* of buffers, besides the pieces */
} sds_write_report;

/* Write. What the file holds then is what writing the regions one after the other would leave
 * there. No byte between them is read or written: others may write those at the same time.
 * Retries EINTR and short writes.
 * SDS_EINVAL, SDS_EOVERFLOW: see fault; nothing was written. SDS_EIO: errno is set (ENOSPC where
 * the disk is full, EFBIG); SDS_ENOMEM: some regions may be written, report tells how many bytes.
 * report and fault may be NULL. */
sds_status sds_write_list(int fd, const sds_list *list, const void *memory,
                          sds_write_report *report, sds_list_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
