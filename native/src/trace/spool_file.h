/* The file behind a trace writer: blocks go to its end whole, or not at all.
 *
 * No descriptor is kept: a program may close descriptors that are not its own (daemons do) and have
 * the number given to a file of its own, which would then be written to; and one that counts on
 * the numbers it gets, or on getting all of them, finds them as without a trace. */
#ifndef SDS_SRC_SPOOL_FILE_H
#define SDS_SRC_SPOOL_FILE_H

#include <stdint.h>
#include <sys/types.h>

#include "bytes.h"

typedef struct sds__spool_file {
    char *path;   /* NULL: none could be made up */
    dev_t device; /* of the file that was created, with the inode */
    ino_t inode;
    int gone;           /* no spool, or one that cannot be trusted: nothing is written any more */
    int64_t size_bytes; /* whole blocks written; 0: the file is not there yet */
    int64_t max_bytes;
} sds__spool_file;

/* Choose the name; nothing is created yet. */
void sds__spool_file_init(sds__spool_file *file, const char *directory, const char *host,
                          int64_t pid, int64_t start_ns, int64_t max_bytes);

/* Append blocks, creating the file with head in front of the first of them. reserve_bytes of the
 * cap stay free. Return 1 where all of it is in the file; else nothing of it is. */
int sds__spool_file_append(sds__spool_file *file, const sds__buffer *head,
                           const sds__buffer *blocks, int64_t reserve_bytes);

void sds__spool_file_free(sds__spool_file *file);

#endif
