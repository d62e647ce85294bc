/* Which pages of servers' objects have been read. Internal. */
#ifndef SDS_QUEUE_PAGES_H
#define SDS_QUEUE_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "sds/status.h"

#define SDS__PAGES_MAX_SERVERS (INT64_C(1) << 22)
#define SDS__PAGES_MAX_PAGES (INT64_C(1) << 46) /* of an object */

/* 64 neighbouring pages of a server. */
typedef struct sds__page_cell {
    int64_t key; /* server and place; -1: free */
    uint64_t pages;
} sds__page_cell;

/* A hash table; all zero is empty. */
typedef struct sds__pages {
    size_t n;
    size_t room; /* a power of two */
    sds__page_cell *cell;
} sds__pages;

void sds__pages_free(sds__pages *pages);

/* Whether there may be no room for more: 64 MiB are full. */
int sds__pages_are_full(const sds__pages *pages);

/* First and end of the pages of [low, high) that have not been read; 0: there are none. */
int sds__pages_missing(const sds__pages *pages, int64_t server, int64_t low, int64_t high,
                       int64_t *first, int64_t *end);

/* Pages [first, end) of a server have been read. SDS_ENOMEM; SDS_ELIMIT: 64 MiB do not hold them.
 */
sds_status sds__pages_mark(sds__pages *pages, int64_t server, int64_t first, int64_t end);

#endif
