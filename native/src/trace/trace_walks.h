/* Reads of boxes without gaps that advance by a constant step, of very many shapes in turn.
 *
 * A fold (trace_fold.h) holds nested loops, and some kilobytes; a program that reads thousands of
 * datasets in turn has thousands of shapes. A walk is one loop in one line of the processor's
 * cache. Whatever is more than that, its owner turns into a fold or writes as it stands. */
#ifndef SDS_SRC_TRACE_WALKS_H
#define SDS_SRC_TRACE_WALKS_H

#include <stddef.h>
#include <stdint.h>

#include "sds/trace_format.h"
#include "trace_layout.h"

#define SDS__N_WALKS                                                                               \
    32768 /* a power of two; 3 MiB, of which only pages that are used are there                    \
           */
#define SDS__WALK_BUCKETS 3
#define SDS__MORE_BUCKETS 10
#define SDS__WALKS_PER_PAGE 64

/* Indices on all axes lie in one word, in equal shares of its bits, the top one of each clear. So
 * the sum of a start and a step is the start one step on, or else nothing that is a start. */
typedef struct sds__walk {
    uint64_t key;   /* dataset, thread and the like; 0: an empty place */
    uint64_t count; /* elements on each axis */
    uint64_t last;  /* start of the last read */
    uint64_t advance;
    uint64_t first_ns : 48; /* when the first one started, behind the base of all walks, */
    uint64_t has_more : 1;  /* further buckets lie apart */
    uint64_t bucket : 15;
    uint32_t since_ns; /* and how much later the last */
    uint32_t sum_ns;
    uint32_t min_ns;
    uint32_t max_ns;
    uint16_t since_2e32_ns;
    uint16_t n[SDS__WALK_BUCKETS]; /* reads of each bucket of latency that occurs: of which, five
                                      bits of `bucket` say */
} sds__walk;

_Static_assert(sizeof(sds__walk) == 64, "one line of the cache");

/* Reads of further buckets, as occur where the processor has others to serve. */
typedef struct sds__walk_more {
    uint16_t n[SDS__MORE_BUCKETS];
    uint8_t bucket[SDS__MORE_BUCKETS];
} sds__walk_more;

#define SDS__WALK_PAGES (SDS__N_WALKS / SDS__WALKS_PER_PAGE)

typedef struct sds__walks {
    int64_t base_ns;                     /* 0: not yet */
    sds__walk *place;                    /* NULL: none yet */
    uint64_t used[SDS__WALK_PAGES / 64]; /* pages with walks, a bit each */
    uint64_t held[SDS__WALK_PAGES / 64]; /* pages that are in memory */
    uint32_t n_refused;
    int (*take_memory)(size_t n_bytes); /* of the writer's options */
    void (*give_memory)(size_t n_bytes);
} sds__walks;

#define SDS__FAR UINT64_MAX /* a start that cannot be told in so little: it ends a walk */

/* A read as walks hold it. */
typedef struct sds__walk_read {
    uint64_t key;
    uint64_t count;
    uint64_t start;
    int64_t start_ns;
    int64_t elapsed_ns;
} sds__walk_read;

/* A box that waits to be folded. */
typedef struct sds__box {
    uint32_t dataset;
    int8_t rank;
    int8_t kind;
    int8_t collective;
    sds_trace_span span;
    int64_t served_by;
    uintptr_t thread;
    int64_t start[SDS_TRACE_BOX_RANK];
    int64_t count[SDS_TRACE_BOX_RANK];
} sds__box;

/* Its times are left to the caller. 0 where its shape cannot be told in so little. */
static inline int sds__walk_take_box(const sds__box *box, uint32_t thread, sds__walk_read *read)
{
    static const uint8_t bits_of[SDS_TRACE_BOX_RANK + 1] = {64, 64, 32, 21, 16};
    const int bits = bits_of[box->rank];
    uint64_t excess = 0, is_far = 0;
    read->start = read->count = 0;
    for (int32_t axis = 0; axis < box->rank; axis++) {
        const uint64_t start = (uint64_t)box->start[axis];
        const uint64_t count = (uint64_t)box->count[axis];
        is_far |= start >> (bits - 1);
        excess |= count >> (bits - 1);
        read->start |= start << (axis * bits);
        read->count |= count << (axis * bits);
    }
    read->key = (uint64_t)box->dataset << 32 | (uint64_t)(thread & 0xff) << 24 |
                (uint64_t)(uint16_t)box->served_by << 8 | (uint64_t)(box->collective != 0) << 4 |
                (uint64_t)(box->kind == SDS_SELECT_ALL) << 3 | (uint64_t)box->rank;
    if (is_far != 0) read->start = SDS__FAR;
    return excess == 0 && box->served_by == (int16_t)box->served_by && thread <= 0xff;
}

/* Without those of further buckets. */
static inline uint32_t sds__walk_n_reads(const sds__walk *walk)
{
    uint32_t n = 0;
    for (int i = 0; i < SDS__WALK_BUCKETS; i++)
        n += walk->n[i];
    return n;
}

static inline uint64_t sds__walk_since_ns(const sds__walk *walk)
{
    return (uint64_t)walk->since_2e32_ns << 32 | walk->since_ns;
}

static inline int64_t sds__walk_last_ns(const sds__walks *walks, const sds__walk *walk)
{
    return sds__wrap_add(walks->base_ns, (int64_t)(walk->first_ns + sds__walk_since_ns(walk)));
}

/* The first of the places where a walk may be. */
static inline uint32_t sds__walk_home(uint32_t dataset)
{
    return dataset & (SDS__N_WALKS - 1);
}

/* Have it fetched from memory, meanwhile. */
static inline void sds__walks_expect(const sds__walks *walks, uint32_t dataset)
{
    if (walks->place != NULL) __builtin_prefetch(&walks->place[sds__walk_home(dataset)], 1);
}

sds__walk *sds__walks_search(const sds__walks *walks, const sds__walk_read *read);

/* The walk of a read's shape, or NULL. */
static inline sds__walk *sds__walks_find(const sds__walks *walks, const sds__walk_read *read)
{
    if (walks->place == NULL) return NULL;
    sds__walk *home = &walks->place[sds__walk_home((uint32_t)(read->key >> 32))];
    if (home->key == read->key && home->count == read->count) return home;
    return sds__walks_search(walks, read);
}

/* Count a read of a bucket that is none of the walk's own. */
int sds__walk_count_more(const sds__walks *walks, sds__walk *walk, unsigned bucket);

/* Count a read that is one step behind the last one. 0 where it is not, or where the walk can hold
 * no more. */
static inline int sds__walk_step(const sds__walks *walks, sds__walk *walk,
                                 const sds__walk_read *read)
{
    const uint64_t elapsed_ns = read->elapsed_ns < 0 ? 0 : (uint64_t)read->elapsed_ns;
    const uint64_t since_ns = (uint64_t)read->start_ns - (uint64_t)walks->base_ns - walk->first_ns;
    const uint32_t n_reads = sds__walk_n_reads(walk);
    const uint64_t advance =
        n_reads == 1 && !walk->has_more ? read->start - walk->last : walk->advance;
    if (walk->last + advance != read->start || read->start == SDS__FAR || since_ns >> 48 != 0 ||
        elapsed_ns > UINT32_MAX - walk->sum_ns)
        return 0;
    const unsigned bucket = (unsigned)sds__latency_bucket((int64_t)elapsed_ns);
    int i = 0;
    while (i < SDS__WALK_BUCKETS && walk->n[i] != 0 && (walk->bucket >> (5 * i) & 31U) != bucket)
        i++;
    if (i == SDS__WALK_BUCKETS) {
        if (!sds__walk_count_more(walks, walk, bucket)) return 0;
    } else {
        if (walk->n[i] == UINT16_MAX) return 0;
        if (walk->n[i] == 0) walk->bucket = (walk->bucket | bucket << (5 * i)) & 0x7fff;
        walk->n[i]++;
    }
    walk->last = read->start;
    walk->advance = advance;
    walk->since_ns = (uint32_t)since_ns;
    walk->since_2e32_ns = (uint16_t)(since_ns >> 32);
    walk->sum_ns += (uint32_t)elapsed_ns;
    if (elapsed_ns < walk->min_ns) walk->min_ns = (uint32_t)elapsed_ns;
    if (elapsed_ns > walk->max_ns) walk->max_ns = (uint32_t)elapsed_ns;
    return 1;
}

/* The first read of a walk, in this place. 0 where its start or times cannot be told in so little:
 * then the place is empty. */
int sds__walk_begin(const sds__walks *walks, sds__walk *walk, const sds__walk_read *read);

/* A place for a shape that no walk has; the walk that is in it, if one is, is to be written first.
 * NULL where memory is refused or exhausted, or others have more use for all places that it could
 * have: reads of walks that began later than this are of use. */
sds__walk *sds__walks_make_room(sds__walks *walks, const sds__walk_read *read, int64_t stale_ns);

/* What a record says of it. Of arrays no more is set than the record's numbers say. */
void sds__walk_tell(const sds__walks *walks, const sds__walk *walk, sds_trace_record *record);

/* Call for each walk; all places are empty then, and most of their memory is given back. */
void sds__walks_drain(sds__walks *walks, sds__record_emit emit, void *context);
/* Forget them all, in the child of a fork too. */
void sds__walks_forget(sds__walks *walks);

#endif
