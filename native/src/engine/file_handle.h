/* What is kept of a file between reads. Internal.
 *
 * Everything is made with the first need and published by one atomic exchange: no lock is held that
 * a fork could leave locked. */
#ifndef SDS_FILE_HANDLE_H
#define SDS_FILE_HANDLE_H

#include <stdint.h>
#include <sys/types.h>

#include "sds/read_engine.h"

/* mapping.c knows what is in it. */
typedef struct sds__mapping sds__mapping;

struct sds_file {
    int fd; /* the caller's */
    int may_map;
    const char *path; /* NULL: not to be opened again; behind the struct */
    const struct sds_io_parameters *parameters; /* NULL: built in */
    struct sds_blocks *blocks;                  /* the caller's; NULL: nothing is checked */
    _Atomic(sds__mapping *) mapping;            /* NULL: none yet */
    int direct_fd;                              /* SDS__DIRECT_... or a descriptor; atomic */
    int64_t direct_alignment;                   /* of offsets, lengths and memory */
    dev_t direct_device;                        /* whose descriptor it is, if it still is */
    ino_t direct_inode;
    int32_t was_missing; /* of the last run read without a plan; atomic */
};

enum { SDS__DIRECT_UNTRIED = -1, SDS__DIRECT_REFUSED = -2 };

/* Whether reads past the page cache may be tried. */
int sds__may_read_directly(const sds_file *file);

/* Close what exec_direct.c has opened. */
void sds__close_direct(sds_file *file);

#endif
