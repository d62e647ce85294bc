#include "block_check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arithmetic.h"
#include "file_read.h"
#include "sds/checksum.h"
#include "sds/trailer.h"

#define LEAST_BLOCK_BYTES (INT64_C(1) << 20)
#define MOST_BLOCKS (INT64_C(1) << 16)
#define FIRST_SAMPLE_BLOCKS 8
#define SAMPLE_BLOCKS 256
#define WINDOW_BYTES (INT64_C(256) << 10) /* stays in the second-level cache */
#define NO_BLOCK INT64_C(-1)

struct sds_blocks {
    int64_t begin;
    int64_t n_bytes;
    int64_t block_bytes;
    int64_t n_blocks;
    sds_block_checks checks;
    uint32_t *stored;      /* atomic; NULL: not read yet. Of the metadata, then of each block */
    int64_t damaged;       /* atomic */
    int64_t until_due;     /* atomic: bytes that reads ask for before the next sample */
    uint64_t random;       /* atomic */
    uint8_t was_checked[]; /* atomic; of each block, where all are checked */
};

int64_t sds_block_bytes(int64_t n_bytes)
{
    int64_t block = LEAST_BLOCK_BYTES;
    while (block < INT64_MAX / 2 && n_bytes / block + (n_bytes % block > 0) > MOST_BLOCKS)
        block *= 2;
    return block;
}

sds_status sds_blocks_new(int64_t data_offset_bytes, int64_t data_bytes, sds_block_checks checks,
                          sds_blocks **out)
{
    const int64_t block_bytes = sds_block_bytes(data_bytes);
    const int64_t n_blocks = data_bytes / block_bytes + (data_bytes % block_bytes > 0);
    sds_blocks *blocks =
        calloc(1, sizeof *blocks + (checks == SDS_BLOCKS_ALL ? (size_t)n_blocks : 0));
    *out = blocks;
    if (blocks == NULL) return SDS_ENOMEM;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    blocks->begin = data_offset_bytes;
    blocks->n_bytes = data_bytes;
    blocks->block_bytes = block_bytes;
    blocks->n_blocks = n_blocks;
    blocks->checks = checks;
    blocks->damaged = NO_BLOCK;
    blocks->until_due = (checks == SDS_BLOCKS_SAMPLED_SOON ? 1 : FIRST_SAMPLE_BLOCKS) * block_bytes;
    blocks->random = (uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)blocks;
    return SDS_OK;
}

void sds_blocks_free(sds_blocks *blocks)
{
    if (blocks == NULL) return;
    free(blocks->stored);
    free(blocks);
}

int64_t sds_blocks_damaged(const sds_blocks *blocks)
{
    return __atomic_load_n(&blocks->damaged, __ATOMIC_ACQUIRE);
}

static sds_status read_stored(const sds_blocks *blocks, int fd, uint32_t **out)
{
    sds_trailer trailer;
    const sds_status found = sds_trailer_read(fd, &trailer);
    if (found != SDS_OK) return found;
    const sds_trailer_entry *entry = sds_trailer_find(&trailer, "checksums");
    const int64_t n_bytes = (1 + blocks->n_blocks) * (int64_t)sizeof(uint32_t);
    if (entry == NULL || entry->size_bytes != n_bytes) return SDS_EFORMAT;
    uint32_t *stored = malloc((size_t)n_bytes);
    if (stored == NULL) return SDS_ENOMEM;
    const sds_status status = sds__read_all(fd, stored, n_bytes, entry->offset_bytes);
    if (status == SDS_OK)
        *out = stored;
    else
        free(stored);
    return status;
}

sds_status sds_blocks_load(sds_blocks *blocks, int fd)
{
    if (__atomic_load_n(&blocks->stored, __ATOMIC_ACQUIRE) != NULL) return SDS_OK;
    uint32_t *stored = NULL, *none = NULL;
    const sds_status status = read_stored(blocks, fd, &stored);
    if (status != SDS_OK) return status;
    if (!__atomic_compare_exchange_n(&blocks->stored, &none, stored, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        free(stored); /* another thread was faster */
    return SDS_OK;
}

static sds_status block_crc(const sds_blocks *blocks, int fd, int64_t block, uint32_t *crc)
{
    int64_t at = block * blocks->block_bytes;
    const int64_t end = sds__least(at + blocks->block_bytes, blocks->n_bytes);
    void *window = malloc((size_t)sds__least(end - at, WINDOW_BYTES));
    if (window == NULL) return SDS_ENOMEM;
    sds_status status = SDS_OK;
    *crc = 0;
    while (status == SDS_OK && at < end) {
        const int64_t n = sds__least(end - at, WINDOW_BYTES);
        status = sds__read_all(fd, window, n, blocks->begin + at);
        if (status == SDS_OK) *crc = sds_crc32c(*crc, window, (size_t)n);
        at += n;
    }
    free(window);
    return status;
}

static sds_status check_block(sds_blocks *blocks, int fd, int64_t block)
{
    uint32_t crc;
    const sds_status status = block_crc(blocks, fd, block, &crc);
    if (status != SDS_OK || crc == blocks->stored[1 + block]) return status;
    __atomic_store_n(&blocks->damaged, block, __ATOMIC_RELEASE);
    return SDS_EFORMAT;
}

/* The block of a byte of the file; what lies outside of the elements counts as the nearest. */
static int64_t block_at(const sds_blocks *blocks, int64_t offset)
{
    const int64_t within =
        sds__greatest(0, sds__least(offset - blocks->begin, blocks->n_bytes - 1));
    return within / blocks->block_bytes;
}

static sds_status check_all(sds_blocks *blocks, int fd, const sds__access *access)
{
    const sds_status loaded = sds_blocks_load(blocks, fd);
    if (loaded != SDS_OK) return loaded;
    const int64_t n_pieces = sds__access_pieces(access);
    for (int64_t piece = 0; piece < n_pieces; piece++) {
        const int64_t offset = sds__piece_offset(access, piece);
        const int64_t last = block_at(blocks, offset + sds__piece_bytes(access, piece) - 1);
        for (int64_t block = block_at(blocks, offset); block <= last; block++) {
            if (__atomic_load_n(&blocks->was_checked[block], __ATOMIC_RELAXED)) continue;
            const sds_status status = check_block(blocks, fd, block);
            if (status != SDS_OK) return status;
            __atomic_store_n(&blocks->was_checked[block], 1, __ATOMIC_RELAXED);
        }
    }
    return SDS_OK;
}

/* Steele 2014, SplitMix64. */
static int64_t random_below(sds_blocks *blocks, int64_t n)
{
    uint64_t z =
        __atomic_add_fetch(&blocks->random, UINT64_C(0x9E3779B97F4A7C15), __ATOMIC_RELAXED);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)n);
}

/* Where there are no checksums, none is looked for again. */
static sds_status check_sample(sds_blocks *blocks, int fd, const sds__access *access)
{
    __atomic_store_n(&blocks->until_due, SAMPLE_BLOCKS * blocks->block_bytes, __ATOMIC_RELAXED);
    const sds_status loaded = sds_blocks_load(blocks, fd);
    if (loaded == SDS_EFORMAT || loaded == SDS_ENOMEM) return SDS_OK;
    if (loaded != SDS_OK) return loaded;
    const int64_t piece = random_below(blocks, sds__access_pieces(access));
    const int64_t within = random_below(blocks, sds__piece_bytes(access, piece));
    return check_block(blocks, fd, block_at(blocks, sds__piece_offset(access, piece) + within));
}

sds_status sds__check_blocks(sds_blocks *blocks, int fd, const sds__access *access,
                             int64_t bytes_useful)
{
    if (sds_blocks_damaged(blocks) != NO_BLOCK) return SDS_EFORMAT;
    if (blocks->checks == SDS_BLOCKS_ALL) return check_all(blocks, fd, access);
    const int64_t left = __atomic_sub_fetch(&blocks->until_due, bytes_useful, __ATOMIC_RELAXED);
    return left > 0 ? SDS_OK : check_sample(blocks, fd, access);
}
