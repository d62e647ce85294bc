#include "trace_walks.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "bytes.h"

#define WALKS_BYTES (SDS__N_WALKS * (sizeof(sds__walk) + sizeof(sds__walk_more)))
#define N_CHOICES 4   /* of places that a walk may have */
#define REFUSALS 8    /* for each newcomer that displaces one */
#define MANY_PAGES 16 /* are given back instead of cleared */
#define N_WORDS (SDS__WALK_PAGES / 64)
#define PAGE_BYTES (WALKS_BYTES / SDS__WALK_PAGES) /* with what its walks have apart */

/* Datasets have consecutive ids in the order of their first reads: at home, walks of one shape for
 * each lie side by side. Walks of further shapes, or of other threads, lie side by side elsewhere.
 */
static void list_choices(const sds__walks *walks, const sds__walk_read *read,
                         sds__walk *choice[N_CHOICES])
{
    const uint32_t home = sds__walk_home((uint32_t)(read->key >> 32));
    uint64_t hash = (read->key & UINT32_MAX) ^ read->count * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ hash >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    const uint32_t elsewhere = (home + (uint32_t)(hash >> 40)) & (SDS__N_WALKS - 1);
    choice[0] = &walks->place[home];
    choice[1] = &walks->place[home ^ 1];
    choice[2] = &walks->place[elsewhere];
    choice[3] = &walks->place[elsewhere ^ 1];
}

/* Behind all places, in their order. */
static sds__walk_more *more_of(const sds__walks *walks, const sds__walk *walk)
{
    sds__walk_more *first = (sds__walk_more *)(void *)(walks->place + SDS__N_WALKS);
    return first + (walk - walks->place);
}

int sds__walk_count_more(const sds__walks *walks, sds__walk *walk, unsigned bucket)
{
    sds__walk_more *more = more_of(walks, walk);
    if (!walk->has_more) memset(more, 0, sizeof *more);
    int i = 0;
    while (i < SDS__MORE_BUCKETS && more->n[i] != 0 && more->bucket[i] != bucket)
        i++;
    if (i == SDS__MORE_BUCKETS || more->n[i] == UINT16_MAX) return 0;
    more->bucket[i] = (uint8_t)bucket;
    more->n[i]++;
    walk->has_more = 1;
    return 1;
}

sds__walk *sds__walks_search(const sds__walks *walks, const sds__walk_read *read)
{
    sds__walk *choice[N_CHOICES];
    list_choices(walks, read, choice);
    for (int i = 0; i < N_CHOICES; i++)
        if (choice[i]->key == read->key && choice[i]->count == read->count) return choice[i];
    return NULL;
}

int sds__walk_begin(const sds__walks *walks, sds__walk *walk, const sds__walk_read *read)
{
    const int64_t elapsed_ns = read->elapsed_ns < 0 ? 0 : read->elapsed_ns;
    const uint64_t first_ns = (uint64_t)read->start_ns - (uint64_t)walks->base_ns;
    if (elapsed_ns > UINT32_MAX || first_ns >> 48 != 0 || read->start == SDS__FAR) {
        walk->key = 0;
        return 0;
    }
    *walk = (sds__walk){.key = read->key,
                        .count = read->count,
                        .last = read->start,
                        .first_ns = first_ns & ((UINT64_C(1) << 48) - 1),
                        .sum_ns = (uint32_t)elapsed_ns,
                        .min_ns = (uint32_t)elapsed_ns,
                        .max_ns = (uint32_t)elapsed_ns,
                        .n = {1},
                        .bucket = (unsigned)sds__latency_bucket(elapsed_ns) & 31U};
    return 1;
}

/* Pages that were never written to are not there. */
static sds__walk *new_places(void)
{
    const int saved_errno = errno;
    void *places = mmap(NULL, WALKS_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (places != MAP_FAILED) (void)madvise(places, WALKS_BYTES, MADV_NOHUGEPAGE);
    errno = saved_errno;
    return places == MAP_FAILED ? NULL : places;
}

static size_t page_of(const sds__walks *walks, const sds__walk *walk)
{
    return (size_t)(walk - walks->place) / SDS__WALKS_PER_PAGE;
}

/* Whether a place may be written to. */
static int hold_page(sds__walks *walks, const sds__walk *walk)
{
    const size_t page = page_of(walks, walk);
    const uint64_t bit = UINT64_C(1) << page % 64;
    if ((walks->held[page / 64] & bit) == 0 && walks->take_memory != NULL &&
        !walks->take_memory(PAGE_BYTES))
        return 0;
    walks->held[page / 64] |= bit;
    return 1;
}

/* Once their memory is given back. */
static void forget_pages(sds__walks *walks)
{
    size_t n_pages = 0;
    for (size_t i = 0; i < N_WORDS; i++)
        n_pages += (size_t)__builtin_popcountll(walks->held[i]);
    memset(walks->held, 0, sizeof walks->held);
    if (n_pages > 0 && walks->give_memory != NULL) walks->give_memory(n_pages * PAGE_BYTES);
}

/* Behind the base. */
static uint64_t last_ns(const sds__walk *walk)
{
    return walk->first_ns + sds__walk_since_ns(walk);
}

sds__walk *sds__walks_make_room(sds__walks *walks, const sds__walk_read *read, int64_t stale_ns)
{
    if (walks->place == NULL) walks->place = new_places();
    if (walks->place == NULL) return NULL;
    /* Reads of other threads may be a little older than the first. */
    if (walks->base_ns == 0) walks->base_ns = sds__wrap_sub(read->start_ns, INT64_C(1) << 47);
    sds__walk *choice[N_CHOICES];
    list_choices(walks, read, choice);
    sds__walk *found = NULL;
    for (int i = 0; i < N_CHOICES && (found == NULL || found->key != 0); i++)
        if (hold_page(walks, choice[i]) &&
            (found == NULL || choice[i]->key == 0 || last_ns(choice[i]) < last_ns(found)))
            found = choice[i];
    if (found == NULL) return NULL;
    /* Of more shapes in turn than there are places, the one not read for longest is the one that is
     * read next: were it displaced each time, none would go on. */
    if (found->key != 0 && sds__walk_last_ns(walks, found) >= stale_ns &&
        ++walks->n_refused % REFUSALS)
        return NULL;
    const size_t page = page_of(walks, found);
    walks->used[page / 64] |= UINT64_C(1) << page % 64;
    return found;
}

void sds__walk_tell(const sds__walks *walks, const sds__walk *walk, sds_trace_record *record)
{
    sds_trace_read *first = &record->first;
    sds_hyperslab *slab = &first->slab;
    const int32_t rank = slab->rank = (int32_t)(walk->key & 7);
    const int bits = rank == 0 ? 64 : 64 / rank;
    const uint64_t mask = (UINT64_C(1) << (bits - 1)) - 1;
    const sds__walk_more *more = walk->has_more ? more_of(walks, walk) : NULL;
    uint32_t n_reads = sds__walk_n_reads(walk);
    for (int i = 0; more != NULL && i < SDS__MORE_BUCKETS; i++)
        n_reads += more->n[i];
    const uint64_t start = walk->last - (n_reads - 1) * walk->advance;
    const uint64_t second = start + walk->advance;
    first->dataset = (uint32_t)(walk->key >> 32);
    first->kind = walk->key >> 3 & 1 ? SDS_SELECT_ALL : SDS_SELECT_HYPERSLAB;
    first->collective = (int32_t)(walk->key >> 4 & 1);
    first->served_by = (int16_t)(uint16_t)(walk->key >> 8);
    first->n_elements = 1;
    for (int32_t axis = 0; axis < rank; axis++) {
        const int shift = axis * bits;
        slab->start[axis] = (int64_t)(start >> shift & mask);
        slab->stride[axis] = slab->block[axis] = 1;
        slab->count[axis] = (int64_t)(walk->count >> shift & mask);
        first->n_elements *= slab->count[axis];
        record->advance[0][axis] = (int64_t)(second >> shift & mask) - slab->start[axis];
    }
    record->n_loops = n_reads > 1;
    record->repeat[0] = record->n_reads = n_reads;
    record->thread = (uint32_t)(walk->key >> 24 & 0xff);
    first->start_ns = sds__wrap_add(walks->base_ns, (int64_t)walk->first_ns);
    first->elapsed_ns = n_reads == 1 ? walk->sum_ns : 0;
    record->last_start_ns = sds__walk_last_ns(walks, walk);
    record->elapsed_sum_ns = walk->sum_ns;
    record->elapsed_min_ns = walk->min_ns;
    record->elapsed_max_ns = walk->max_ns;
    memset(record->latency, 0, sizeof record->latency);
    for (int i = 0; i < SDS__WALK_BUCKETS; i++)
        record->latency[walk->bucket >> (5 * i) & 31U] += walk->n[i];
    for (int i = 0; more != NULL && i < SDS__MORE_BUCKETS; i++)
        record->latency[more->bucket[i]] += more->n[i];
}

static void drain_page(const sds__walks *walks, sds__walk *page, sds__record_emit emit,
                       void *context)
{
    sds_trace_record record;
    for (int i = 0; i < SDS__WALKS_PER_PAGE; i++) {
        if (page[i].key == 0) continue;
        sds__walk_tell(walks, &page[i], &record);
        page[i].key = 0;
        emit(context, &record);
    }
}

void sds__walks_drain(sds__walks *walks, sds__record_emit emit, void *context)
{
    size_t n_pages = 0;
    for (size_t i = 0; i < N_WORDS; i++)
        for (uint64_t pages = walks->used[i]; pages != 0; pages &= pages - 1) {
            const size_t page = 64 * i + (size_t)__builtin_ctzll(pages);
            drain_page(walks, &walks->place[page * SDS__WALKS_PER_PAGE], emit, context);
            n_pages++;
        }
    if (n_pages > MANY_PAGES && madvise(walks->place, WALKS_BYTES, MADV_DONTNEED) == 0)
        forget_pages(walks);
    memset(walks->used, 0, sizeof walks->used);
    walks->base_ns = 0;
}

void sds__walks_forget(sds__walks *walks)
{
    if (walks->place != NULL) munmap(walks->place, WALKS_BYTES);
    forget_pages(walks);
    walks->place = NULL;
    walks->base_ns = 0;
    memset(walks->used, 0, sizeof walks->used);
}
