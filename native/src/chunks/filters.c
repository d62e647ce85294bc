#include "sds/filters.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define CHECKSUM_BYTES 4
/* Elements that are transposed together; what is left over is not. */
#define BITSHUFFLE_MULTIPLE 8

static uint32_t big_endian_32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t big_endian_64(const uint8_t *p)
{
    return (uint64_t)big_endian_32(p) << 32 | big_endian_32(p + 4);
}

static uint32_t little_endian_32(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static sds_status undo_shuffle(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                               size_t capacity, size_t *produced)
{
    if (n > capacity || self->option[0] == 0) return SDS_EFORMAT;
    sds_unshuffle(self->option[0], n, in, out);
    *produced = n;
    return SDS_OK;
}

static sds_status undo_fletcher32(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                                  size_t capacity, size_t *produced)
{
    (void)self;
    if (n < CHECKSUM_BYTES || n - CHECKSUM_BYTES > capacity) return SDS_EFORMAT;
    n -= CHECKSUM_BYTES;
    if (sds_fletcher32(in, n) != little_endian_32(in + n)) return SDS_EFORMAT;
    memcpy(out, in, n);
    *produced = n;
    return SDS_OK;
}

static sds_status undo_deflate(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                               size_t capacity, size_t *produced)
{
    typedef int (*uncompress2)(uint8_t *, unsigned long *, const uint8_t *, unsigned long *);
    unsigned long left = n, made = capacity;
    if (((uncompress2)self->function[0])(out, &made, in, &left) != 0) return SDS_EFORMAT;
    *produced = made;
    return SDS_OK;
}

/* Of the streams that zlib's compressors write alone: libdeflate does not look whether one keeps
 * to the smaller window that its header may name, and zlib refuses it where it does not. */
static sds_status undo_libdeflate(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                                  size_t capacity, size_t *produced)
{
    typedef void *(*alloc)(void);
    typedef int (*decompress_ex)(void *, const void *, size_t, void *, size_t, size_t *, size_t *);
    typedef void (*release)(void *);
    const uint8_t largest_window = 0x78;
    if (n == 0 || in[0] != largest_window) return SDS_EFORMAT;
    void *state = ((alloc)self->function[0])();
    if (state == NULL) return SDS_ENOMEM;
    size_t used;
    const int failed =
        ((decompress_ex)self->function[1])(state, in, n, out, capacity, &used, produced);
    ((release)self->function[2])(state);
    return failed ? SDS_EFORMAT : SDS_OK;
}

static sds_status undo_lzf(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                           size_t capacity, size_t *produced)
{
    typedef unsigned (*lzf_decompress)(const void *, unsigned, void *, unsigned);
    if (n > UINT_MAX || capacity > UINT_MAX) return SDS_EFORMAT;
    *produced = ((lzf_decompress)self->function[0])(in, (unsigned)n, out, (unsigned)capacity);
    return *produced == 0 ? SDS_EFORMAT : SDS_OK;
}

typedef int (*lz4_decompress_safe)(const char *, char *, int, int);

static int is_lz4_of(sds_filter_function function, const uint8_t *in, size_t n, uint8_t *out,
                     size_t n_out)
{
    if (n > INT_MAX || n_out > INT_MAX) return 0;
    const int made =
        ((lz4_decompress_safe)function)((const char *)in, (char *)out, (int)n, (int)n_out);
    return made >= 0 && (size_t)made == n_out;
}

/* Bytes of all, bytes of a block (big-endian); of each block its bytes as stored, and those. */
static sds_status undo_lz4(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                           size_t capacity, size_t *produced)
{
    if (n < 12) return SDS_EFORMAT;
    const uint64_t n_out = big_endian_64(in);
    uint64_t block = big_endian_32(in + 8);
    in += 12;
    n -= 12;
    if (n_out > capacity || (n_out > 0 && block == 0)) return SDS_EFORMAT;
    for (uint64_t done = 0; done < n_out; done += block) {
        if (block > n_out - done) block = n_out - done;
        if (n < 4) return SDS_EFORMAT;
        const uint32_t stored = big_endian_32(in);
        in += 4;
        n -= 4;
        if (stored > n) return SDS_EFORMAT;
        if (stored == block)
            memcpy(out + done, in, block);
        else if (!is_lz4_of(self->function[0], in, stored, out + done, block))
            return SDS_EFORMAT;
        in += stored;
        n -= stored;
    }
    *produced = n_out;
    return SDS_OK;
}

typedef size_t (*zstd_decompress)(void *, size_t, const void *, size_t);

static sds_status undo_zstd(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                            size_t capacity, size_t *produced)
{
    typedef unsigned long long (*content_size)(const void *, size_t);
    const unsigned long long said = ((content_size)self->function[1])(in, n);
    if (said > capacity) return SDS_EFORMAT; /* among these, that it does not say */
    *produced = ((zstd_decompress)self->function[0])(out, capacity, in, n);
    return *produced == said ? SDS_OK : SDS_EFORMAT;
}

static sds_status undo_blosc(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                             size_t capacity, size_t *produced)
{
    typedef int (*validate)(const void *, size_t, size_t *);
    typedef int (*decompress)(const void *, void *, size_t, int);
    size_t said;
    if (((validate)self->function[0])(in, n, &said) != 0 || said > capacity) return SDS_EFORMAT;
    const int made = ((decompress)self->function[1])(in, out, said, 1);
    if (made <= 0 || (size_t)made != said) return SDS_EFORMAT;
    *produced = said;
    return SDS_OK;
}

static sds_status undo_bzip2(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                             size_t capacity, size_t *produced)
{
    typedef int (*decompress)(char *, unsigned *, char *, unsigned, int, int);
    if (n > UINT_MAX || capacity > UINT_MAX) return SDS_EFORMAT;
    unsigned made = (unsigned)capacity;
    /* It takes what it only reads as char *. */
    if (((decompress)self->function[0])((char *)out, &made, (char *)(uintptr_t)in, (unsigned)n, 0,
                                        0) != 0)
        return SDS_EFORMAT;
    *produced = made;
    return SDS_OK;
}

typedef int64_t (*bitunshuffle)(const void *, void *, size_t n, size_t element, size_t block);

static sds_status undo_bitshuffle(const sds_filter *self, const uint8_t *in, size_t n, uint8_t *out,
                                  size_t capacity, size_t *produced)
{
    const size_t element = self->option[0];
    if (element == 0 || n % element != 0 || n > capacity) return SDS_EFORMAT;
    if (((bitunshuffle)self->function[0])(in, out, n / element, element, self->option[1]) < 0)
        return SDS_EFORMAT;
    *produced = n;
    return SDS_OK;
}

/* A compressed block of bitshuffle: its bytes as stored, big-endian, and those. */
static sds_status undo_block(const sds_filter *self, const uint8_t **in, size_t *n,
                             uint8_t *shuffled, uint8_t *out, size_t n_elements)
{
    const size_t element = self->option[0], block_bytes = n_elements * element;
    if (*n < 4) return SDS_EFORMAT;
    const size_t stored = big_endian_32(*in);
    *in += 4;
    *n -= 4;
    if (stored > *n) return SDS_EFORMAT;
    const int is_right = self->codec == SDS_CODEC_BITSHUFFLE_LZ4
                             ? is_lz4_of(self->function[1], *in, stored, shuffled, block_bytes)
                             : ((zstd_decompress)self->function[1])(shuffled, block_bytes, *in,
                                                                    stored) == block_bytes;
    if (!is_right) return SDS_EFORMAT;
    *in += stored;
    *n -= stored;
    return ((bitunshuffle)self->function[0])(shuffled, out, n_elements, element, n_elements) < 0
               ? SDS_EFORMAT
               : SDS_OK;
}

/* Bytes of all, bytes of a block (big-endian); the blocks, of which the last may be shorter; and
 * up to seven elements as they are. */
static sds_status undo_bitshuffle_blocks(const sds_filter *self, const uint8_t *in, size_t n,
                                         uint8_t *out, size_t capacity, size_t *produced)
{
    const size_t element = self->option[0];
    if (n < 12 || element == 0) return SDS_EFORMAT;
    const uint64_t n_out = big_endian_64(in);
    size_t block = big_endian_32(in + 8) / element; /* elements, as below */
    in += 12;
    n -= 12;
    if (n_out > capacity || n_out % element != 0) return SDS_EFORMAT;
    if (block == 0 || block % BITSHUFFLE_MULTIPLE != 0) return SDS_EFORMAT;
    const size_t all = n_out / element, whole = all - all % BITSHUFFLE_MULTIPLE;
    uint8_t *shuffled = malloc(element * (block < all ? block : all) + 1);
    if (shuffled == NULL) return SDS_ENOMEM;
    sds_status status = SDS_OK;
    for (size_t done = 0; done < whole && status == SDS_OK; done += block) {
        if (block > whole - done) block = whole - done;
        status = undo_block(self, &in, &n, shuffled, out + done * element, block);
    }
    free(shuffled);
    if (status != SDS_OK) return status;
    const size_t left = (all - whole) * element;
    if (left > n) return SDS_EFORMAT;
    memcpy(out + whole * element, in, left);
    *produced = n_out;
    return SDS_OK;
}

sds_status sds_filter_undo(const sds_filter *filter, const void *in, size_t n, void *out,
                           size_t capacity, size_t *produced)
{
    typedef sds_status (*undo)(const sds_filter *, const uint8_t *, size_t, uint8_t *, size_t,
                               size_t *);
    static const undo of_codec[SDS_N_CODECS] = {
        [SDS_CODEC_SHUFFLE] = undo_shuffle,
        [SDS_CODEC_FLETCHER32] = undo_fletcher32,
        [SDS_CODEC_DEFLATE] = undo_deflate,
        [SDS_CODEC_LIBDEFLATE] = undo_libdeflate,
        [SDS_CODEC_LZF] = undo_lzf,
        [SDS_CODEC_LZ4] = undo_lz4,
        [SDS_CODEC_ZSTD] = undo_zstd,
        [SDS_CODEC_BLOSC] = undo_blosc,
        [SDS_CODEC_BZIP2] = undo_bzip2,
        [SDS_CODEC_BITSHUFFLE] = undo_bitshuffle,
        [SDS_CODEC_BITSHUFFLE_LZ4] = undo_bitshuffle_blocks,
        [SDS_CODEC_BITSHUFFLE_ZSTD] = undo_bitshuffle_blocks,
    };
    *produced = 0;
    if ((int)filter->codec < 0 || filter->codec >= SDS_N_CODECS) return SDS_EINVAL;
    return of_codec[filter->codec](filter, in, n, out, capacity, produced);
}
