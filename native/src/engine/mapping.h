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
    _Atomic int64_t touched; /* bound of its resident bytes; more than length: all */
    _Atomic int64_t users;   /* and one more while it is the one that is kept; 0: unmapped */
    struct sds__view *older;
} sds__view;

/* Whether the file can be mapped: the caller allows it, it is a regular file of a local file
 * system, and the process may use as many addresses as it likes. Finds out once. */
int sds__can_map(sds_file *file);

/* Whether the next read may be planned from a mapping: it can be, and the last ones have not shown
 * that it takes longer. To be asked once per read. */
int sds__may_map(sds_file *file);

/* Whether this range is mapped, from a read before. */
int sds__is_mapped(const sds_file *file, int64_t offset, int64_t length);

/* Likewise, and the last read from the mapping has found all of its bytes in memory. */
int sds__was_loaded(const sds_file *file, int64_t offset, int64_t length);

/* Whether it is, or is to be: the first loads from a page cost more than calls do, all others next
 * to nothing, and a file that is read a second time will be read a third time. To be asked once per
 * read. */
int sds__counts_as_mapped(sds_file *file, int64_t offset, int64_t length);

/* To be told how a read from the mapping ended: of n pieces, how many were loaded before it became
 * slower than calls are. Where reads come no further from one to the next, they load from ever new
 * pages: then more and more of them are left to calls before it is tried again. */
void sds__mapping_ended(sds_file *file, int64_t loaded, int64_t n);

/* A view that holds the range; NULL: not possible, or the file does not reach so far. */
sds__view *sds__view_acquire(sds_file *file, int64_t offset, int64_t length);
void sds__view_release(sds__view *view);

/* To be told of an upper bound of bytes that were loaded: keeps what is resident within bounds,
 * where that many come between two calls. */
void sds__view_touched(sds__view *view, int64_t bytes);
int64_t sds__mapped_between_looks(void);

/* Where more of files is resident in this process, take the view's pages out of it; not out of the
 * page cache. */
void sds__view_trim(sds__view *view, int64_t max_resident_bytes);

/* No read may be under way. NULL: nothing. */
void sds__mapping_free(sds__mapping *mapping);

#endif
