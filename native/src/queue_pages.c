#include "queue_pages.h"

#include <stdlib.h>

#include "arithmetic.h"

#define PAGES_PER_CELL 64
#define FIRST_ROOM ((size_t)1024)
/* 64 MiB, half of which may be used. Growing to that takes 96. */
#define MAX_ROOM ((size_t)1 << 22)
/* What the messages of one instant add has room as well, unless they are of millions of pages. */
#define FULL ((size_t)7 << 18)

void sds__pages_free(sds__pages *pages)
{
    free(pages->cell);
}

int sds__pages_are_full(const sds__pages *pages)
{
    return pages->n >= FULL;
}

static int64_t key_of(int64_t server, int64_t cell)
{
    return (server << 40) | cell;
}

static size_t slot_of(const sds__pages *pages, int64_t key)
{
    uint64_t hash = (uint64_t)key * UINT64_C(0x9E3779B97F4A7C15);
    size_t slot = (size_t)(hash >> 20) & (pages->room - 1);
    while (pages->cell[slot].key != -1 && pages->cell[slot].key != key)
        slot = (slot + 1) & (pages->room - 1);
    return slot;
}

/* At most half of the table is used, so that slots are found soon. */
static sds_status make_room(sds__pages *pages)
{
    if (2 * pages->n < pages->room) return SDS_OK;
    if (pages->room == MAX_ROOM) return SDS_ELIMIT;
    sds__pages more = {.n = pages->n, .room = pages->room == 0 ? FIRST_ROOM : 2 * pages->room};
    more.cell = malloc(more.room * sizeof *more.cell);
    if (more.cell == NULL) return SDS_ENOMEM;
    for (size_t i = 0; i < more.room; i++)
        more.cell[i].key = -1;
    for (size_t i = 0; i < pages->room; i++)
        if (pages->cell[i].key != -1)
            more.cell[slot_of(&more, pages->cell[i].key)] = pages->cell[i];
    free(pages->cell);
    *pages = more;
    return SDS_OK;
}

/* Bits [from, to) of a cell; 0 <= from < to <= 64. */
static uint64_t bits(int64_t from, int64_t to)
{
    return (~UINT64_C(0) >> (PAGES_PER_CELL - (to - from))) << from;
}

int sds__pages_missing(const sds__pages *pages, int64_t server, int64_t low, int64_t high,
                       int64_t *first, int64_t *end)
{
    int is_missing = 0;
    for (int64_t c = low / PAGES_PER_CELL; c * PAGES_PER_CELL < high; c++) {
        const int64_t base = c * PAGES_PER_CELL;
        const int64_t from = sds__greatest(low, base);
        const int64_t to = sds__least(high, base + PAGES_PER_CELL);
        uint64_t left = bits(from - base, to - base);
        if (pages->room > 0) {
            const sds__page_cell *known = &pages->cell[slot_of(pages, key_of(server, c))];
            if (known->key != -1) left &= ~known->pages;
        }
        if (left == 0) continue;
        if (!is_missing) *first = base + __builtin_ctzll(left);
        *end = base + PAGES_PER_CELL - __builtin_clzll(left);
        is_missing = 1;
    }
    return is_missing;
}

sds_status sds__pages_mark(sds__pages *pages, int64_t server, int64_t first, int64_t end)
{
    for (int64_t c = first / PAGES_PER_CELL; c * PAGES_PER_CELL < end; c++) {
        const int64_t base = c * PAGES_PER_CELL;
        const int64_t from = sds__greatest(first, base);
        const int64_t to = sds__least(end, base + PAGES_PER_CELL);
        const sds_status status = make_room(pages);
        if (status != SDS_OK) return status;
        sds__page_cell *known = &pages->cell[slot_of(pages, key_of(server, c))];
        if (known->key == -1) {
            *known = (sds__page_cell){.key = key_of(server, c)};
            pages->n++;
        }
        known->pages |= bits(from - base, to - base);
    }
    return SDS_OK;
}
