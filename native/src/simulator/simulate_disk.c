#include "simulate_disk.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic.h"

#define WORD_BITS 64
#define BLOCK_WORDS 512
#define BLOCK_CELLS ((int64_t)BLOCK_WORDS * WORD_BITS)
#define MAX_INDEX (INT64_C(1) << 22)

void sds__disk_init(sds__disk *disk, int64_t *blocks_left)
{
    memset(disk, 0, sizeof *disk);
    disk->read.blocks_left = blocks_left;
    disk->head = -1;
}

void sds__disk_free(sds__disk *disk)
{
    free(disk->ahead.wanted);
    free(disk->behind.wanted);
    for (size_t i = 0; i < disk->read.n_blocks; i++)
        free(disk->read.block[i]);
    free(disk->read.block);
}

static int is_before(const sds__wanted *a, const sds__wanted *b)
{
    if (a->low != b->low) return a->low < b->low;
    if (a->arrived_ns != b->arrived_ns) return a->arrived_ns > b->arrived_ns;
    if (a->high != b->high) return a->high < b->high;
    if (a->process != b->process) return a->process < b->process;
    return a->first_byte < b->first_byte;
}

static sds_status push(sds__wanted_heap *heap, const sds__wanted *wanted)
{
    if (heap->n == heap->room) {
        const size_t room = heap->room == 0 ? 8 : heap->room * 2;
        sds__wanted *more = realloc(heap->wanted, room * sizeof *more);
        if (more == NULL) return SDS_ENOMEM;
        heap->wanted = more;
        heap->room = room;
    }
    size_t i = heap->n++;
    while (i > 0 && is_before(wanted, &heap->wanted[(i - 1) / 2])) {
        heap->wanted[i] = heap->wanted[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap->wanted[i] = *wanted;
    return SDS_OK;
}

static void pop(sds__wanted_heap *heap, sds__wanted *out)
{
    *out = heap->wanted[0];
    const sds__wanted last = heap->wanted[--heap->n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap->n) break;
        if (child + 1 < heap->n && is_before(&heap->wanted[child + 1], &heap->wanted[child]))
            child++;
        if (!is_before(&heap->wanted[child], &last)) break;
        heap->wanted[i] = heap->wanted[child];
        i = child;
    }
    heap->wanted[i] = last;
}

sds_status sds__disk_want(sds__disk *disk, const sds__wanted *wanted)
{
    return push(wanted->low >= disk->swept ? &disk->ahead : &disk->behind, wanted);
}

int sds__disk_next(sds__disk *disk, sds__wanted *out)
{
    if (disk->ahead.n == 0) {
        if (disk->behind.n == 0) return 0;
        const sds__wanted_heap turned = disk->ahead;
        disk->ahead = disk->behind;
        disk->behind = turned;
    }
    pop(&disk->ahead, out);
    disk->swept = out->low;
    return 1;
}

sds_status sds__disk_next_ahead(sds__disk *disk, sds__wanted *out, int *is_any)
{
    *is_any = 1;
    while (disk->ahead.n > 0) {
        pop(&disk->ahead, out);
        if (out->low >= disk->head) return SDS_OK;
        const sds_status status = push(&disk->behind, out); /* the head has passed it */
        if (status != SDS_OK) return status;
    }
    *is_any = sds__disk_next(disk, out);
    return SDS_OK;
}

/* Bits [from, to) of a word; 0 <= from < to <= 64. */
static uint64_t bits(int64_t from, int64_t to)
{
    return (~UINT64_C(0) >> (WORD_BITS - (to - from))) << from;
}

static const uint64_t *block_of(const sds__cells_read *read, int64_t cell)
{
    const size_t block = (size_t)(cell / BLOCK_CELLS);
    return block < read->n_blocks ? read->block[block] : NULL;
}

int sds__cells_missing(const sds__cells_read *read, int64_t low, int64_t high, int64_t *first,
                       int64_t *last)
{
    int is_missing = 0;
    for (int64_t cell = low; cell < high;) {
        const uint64_t *block = block_of(read, cell);
        if (block == NULL) {
            if (!is_missing) *first = cell;
            is_missing = 1;
            const int is_past = (size_t)(cell / BLOCK_CELLS) >= read->n_blocks;
            cell = is_past ? high : sds__least(high, (cell / BLOCK_CELLS + 1) * BLOCK_CELLS);
            *last = cell;
            continue;
        }
        const int64_t word_start = cell / WORD_BITS * WORD_BITS;
        const int64_t end = sds__least(high, word_start + WORD_BITS);
        const uint64_t missing =
            ~block[cell % BLOCK_CELLS / WORD_BITS] & bits(cell - word_start, end - word_start);
        if (missing != 0) {
            if (!is_missing) *first = word_start + __builtin_ctzll(missing);
            is_missing = 1;
            *last = word_start + WORD_BITS - __builtin_clzll(missing);
        }
        cell = end;
    }
    return is_missing;
}

/* Make a block that is not there. */
static sds_status make_room(sds__cells_read *read, size_t block)
{
    if (block >= MAX_INDEX || *read->blocks_left == 0) return SDS_ELIMIT;
    if (block >= read->n_blocks) {
        const size_t n = block + 1 > read->n_blocks * 2 ? block + 1 : read->n_blocks * 2;
        uint64_t **more = realloc(read->block, n * sizeof *more);
        if (more == NULL) return SDS_ENOMEM;
        for (size_t i = read->n_blocks; i < n; i++)
            more[i] = NULL;
        read->block = more;
        read->n_blocks = n;
    }
    read->block[block] = calloc(BLOCK_WORDS, sizeof **read->block);
    if (read->block[block] == NULL) return SDS_ENOMEM;
    --*read->blocks_left;
    return SDS_OK;
}

sds_status sds__cells_mark(sds__cells_read *read, int64_t low, int64_t high)
{
    for (int64_t cell = low; cell < high;) {
        const size_t block = (size_t)(cell / BLOCK_CELLS);
        if (block_of(read, cell) == NULL) {
            const sds_status status = make_room(read, block);
            if (status != SDS_OK) return status;
        }
        const int64_t word_start = cell / WORD_BITS * WORD_BITS;
        const int64_t end = sds__least(high, word_start + WORD_BITS);
        read->block[block][cell % BLOCK_CELLS / WORD_BITS] |=
            bits(cell - word_start, end - word_start);
        cell = end;
    }
    return SDS_OK;
}
