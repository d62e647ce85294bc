/* The mapping of a file that is kept between reads. Internal.
 *
 * One range of the file, as long as the reads so far have asked for; a read outside it maps a
 * longer one. Nothing is locked: what is in use is counted, and unmapped by its last user. */
#ifndef SDS_MAPPING_H
#define SDS_MAPPING_H

#include <stdint.h>

#include "file_handle.h"

/* A range that is mapped. */
typedef struct sds__view {
    const uint8_t *bytes;
    int64_t offset; /* in the file */
    int64_t length;
    _Atomic int64_t touched; /* at most so many bytes of it are resident; more than length: all */
    _Atomic int64_t users;   /* and one more while it is the one that is kept; 0: unmapped */
    struct sds__view *older;
} sds__view;

/* Whether the file may be mapped: the caller allows it, it is a regular file of a local file
 * system, and the process may use as many addresses as it likes. Finds out once. */
int sds__may_map(sds_file *file);

/* Whether this range is mapped, from a read before. */
int sds__is_mapped(const sds_file *file, int64_t offset, int64_t length);

/* A view that holds the range; NULL: not possible, or the file does not reach so far. */
sds__view *sds__view_acquire(sds_file *file, int64_t offset, int64_t length);
void sds__view_release(sds__view *view);

/* To be told of at most so many bytes more that were loaded: keeps what is resident within bounds.
 */
void sds__view_touched(sds__view *view, int64_t bytes);

/* Where more of files is resident in this process, take the view's pages out of it; not out of the
 * page cache. */
void sds__view_trim(sds__view *view, int64_t max_resident_bytes);

/* No read may be under way. NULL: nothing. */
void sds__mapping_free(sds__mapping *mapping);

#endif
