#include "sds/filters.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

/* zlib's stream, as its interface has had it since 1995. */
typedef struct {
    const uint8_t *next_in;
    unsigned avail_in;
    unsigned long total_in;
    uint8_t *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *message;
    void *state;
    void *(*allocate)(void *opaque, unsigned n, unsigned bytes);
    void (*release)(void *opaque, void *address);
    void *opaque;
    int data_type;
    unsigned long adler;
    unsigned long reserved;
} zlib_stream;

/* zlib takes 7 KiB, and 32 KiB for its window; libraries in its place up to 80 KiB at once. */
#define ZLIB_BYTES (128 << 10)
#define ZLIB_ALIGNMENT 64

/* Memory of one stream, which is never given back in parts. */
typedef struct {
    size_t used;
} zlib_memory;

static void *begin_deflate(const sds_filter *self)
{
    (void)self;
    const int saved_errno = errno;
    void *mapped =
        mmap(NULL, ZLIB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved_errno;
    return mapped == MAP_FAILED ? NULL : mapped;
}

static void end_deflate(const sds_filter *self, void *state)
{
    (void)self;
    (void)munmap(state, ZLIB_BYTES);
}

static void *take(void *opaque, unsigned n, unsigned bytes)
{
    zlib_memory *memory = opaque;
    const uint64_t asked = (uint64_t)n * bytes;
    if (asked > ZLIB_BYTES - memory->used) return NULL;
    void *found = (char *)opaque + memory->used;
    memory->used += (asked + ZLIB_ALIGNMENT - 1) / ZLIB_ALIGNMENT * ZLIB_ALIGNMENT;
    return found;
}

static void keep(void *opaque, void *address)
{
    (void)opaque;
    (void)address;
}

static sds_status undo_deflate(const sds_filter *self, void *state, const uint8_t *in, size_t n,
                               uint8_t *out, size_t capacity, size_t *produced)
{
    typedef int (*begin)(zlib_stream *, const char *version, int stream_bytes);
    typedef int (*inflate)(zlib_stream *, int flush);
    typedef int (*end)(zlib_stream *);
    const int to_the_end = 4, is_at_the_end = 1;
    if (n > UINT_MAX || capacity > UINT_MAX) return SDS_EFORMAT;
    zlib_memory *memory = state;
    memory->used = ZLIB_ALIGNMENT;
    zlib_stream stream = {.next_in = in, .allocate = take, .release = keep, .opaque = memory};
    stream.avail_in = (unsigned)n;
    stream.next_out = out;
    stream.avail_out = (unsigned)capacity;
    if (((begin)self->function[0])(&stream, "1", (int)sizeof stream) != 0) return SDS_ENOMEM;
    const int is_whole = ((inflate)self->function[1])(&stream, to_the_end) == is_at_the_end;
    *produced = capacity - stream.avail_out;
    (void)((end)self->function[2])(&stream);
    return is_whole ? SDS_OK : SDS_EFORMAT;
}

static void *begin_libdeflate(const sds_filter *self)
{
    typedef void *(*alloc)(void);
    return ((alloc)self->function[0])();
}

static void end_libdeflate(const sds_filter *self, void *state)
{
    typedef void (*release)(void *);
    ((release)self->function[2])(state);
}

/* Of the streams that zlib's compressors write alone: libdeflate does not look whether one keeps
 * to the smaller window that its header may name, and zlib refuses it where it does not. */
static sds_status undo_libdeflate(const sds_filter *self, void *state, const uint8_t *in, size_t n,
                                  uint8_t *out, size_t capacity, size_t *produced)
{
    typedef int (*decompress_ex)(void *, const void *, size_t, void *, size_t, size_t *, size_t *);
    const uint8_t largest_window = 0x78;
    if (n == 0 || in[0] != largest_window) return SDS_EFORMAT;
    size_t used;
    return ((decompress_ex)self->function[1])(state, in, n, out, capacity, &used, produced) == 0
               ? SDS_OK
               : SDS_EFORMAT;
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

/* Of ZSTD and BITSHUFFLE_ZSTD, which have these functions in the same places. */
static void *begin_zstd(const sds_filter *self)
{
    typedef void *(*create)(void);
    return ((create)self->function[0])();
}

static int is_zstd_of(const sds_filter *self, void *state, const uint8_t *in, size_t n,
                      uint8_t *out, size_t n_out)
{
    typedef size_t (*decompress)(void *, void *, size_t, const void *, size_t);
    return ((decompress)self->function[1])(state, out, n_out, in, n) == n_out;
}

static void end_zstd(const sds_filter *self, void *state)
{
    typedef size_t (*release)(void *);
    (void)((release)self->function[2])(state);
}

static sds_status undo_zstd(const sds_filter *self, void *state, const uint8_t *in, size_t n,
                            uint8_t *out, size_t capacity, size_t *produced)
{
    typedef unsigned long long (*content_size)(const void *, size_t);
    const unsigned long long said = ((content_size)self->function[3])(in, n);
    if (said > capacity) return SDS_EFORMAT; /* among these, that it does not say */
    *produced = (size_t)said;
    return is_zstd_of(self, state, in, n, out, (size_t)said) ? SDS_OK : SDS_EFORMAT;
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
static sds_status undo_block(const sds_filter *self, void *zstd, const uint8_t **in, size_t *n,
                             uint8_t *shuffled, uint8_t *out, size_t n_elements)
{
    const int has_lz4 = self->codec == SDS_CODEC_BITSHUFFLE_LZ4;
    const bitunshuffle unshuffle = (bitunshuffle)self->function[has_lz4 ? 0 : 3];
    const size_t element = self->option[0], block_bytes = n_elements * element;
    if (*n < 4) return SDS_EFORMAT;
    const size_t stored = big_endian_32(*in);
    *in += 4;
    *n -= 4;
    if (stored > *n) return SDS_EFORMAT;
    const int is_right = has_lz4 ? is_lz4_of(self->function[1], *in, stored, shuffled, block_bytes)
                                 : is_zstd_of(self, zstd, *in, stored, shuffled, block_bytes);
    if (!is_right) return SDS_EFORMAT;
    *in += stored;
    *n -= stored;
    return unshuffle(shuffled, out, n_elements, element, n_elements) < 0 ? SDS_EFORMAT : SDS_OK;
}

/* Bytes of all, bytes of a block (big-endian); the blocks, of which the last may be shorter; and
 * up to seven elements as they are. */
static sds_status undo_blocks(const sds_filter *self, void *zstd, const uint8_t *in, size_t n,
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
        status = undo_block(self, zstd, &in, &n, shuffled, out + done * element, block);
    }
    free(shuffled);
    if (status != SDS_OK) return status;
    const size_t left = (all - whole) * element;
    if (left > n) return SDS_EFORMAT;
    memcpy(out + whole * element, in, left);
    *produced = n_out;
    return SDS_OK;
}

static sds_status undo_bitshuffle_lz4(const sds_filter *self, const uint8_t *in, size_t n,
                                      uint8_t *out, size_t capacity, size_t *produced)
{
    return undo_blocks(self, NULL, in, n, out, capacity, produced);
}

/* Filters that need something besides. */
typedef struct {
    void *(*begin)(const sds_filter *);
    void (*end)(const sds_filter *, void *state);
    sds_status (*undo)(const sds_filter *, void *state, const uint8_t *, size_t, uint8_t *, size_t,
                       size_t *);
} stateful;

static const stateful with_state[SDS_N_CODECS] = {
    [SDS_CODEC_DEFLATE] = {begin_deflate, end_deflate, undo_deflate},
    [SDS_CODEC_LIBDEFLATE] = {begin_libdeflate, end_libdeflate, undo_libdeflate},
    [SDS_CODEC_ZSTD] = {begin_zstd, end_zstd, undo_zstd},
    [SDS_CODEC_BITSHUFFLE_ZSTD] = {begin_zstd, end_zstd, undo_blocks},
};

static int is_codec(const sds_filter *filter)
{
    return (int)filter->codec >= 0 && filter->codec < SDS_N_CODECS;
}

int sds_filter_keeps_state(const sds_filter *filter)
{
    return is_codec(filter) && with_state[filter->codec].begin != NULL;
}

void *sds_filter_begin(const sds_filter *filter)
{
    return sds_filter_keeps_state(filter) ? with_state[filter->codec].begin(filter) : NULL;
}

void sds_filter_end(const sds_filter *filter, void *state)
{
    if (state != NULL) with_state[filter->codec].end(filter, state);
}

sds_status sds_filter_undo(const sds_filter *filter, void *state, const void *in, size_t n,
                           void *out, size_t capacity, size_t *produced)
{
    typedef sds_status (*undo)(const sds_filter *, const uint8_t *, size_t, uint8_t *, size_t,
                               size_t *);
    static const undo of_codec[SDS_N_CODECS] = {
        [SDS_CODEC_SHUFFLE] = undo_shuffle,
        [SDS_CODEC_FLETCHER32] = undo_fletcher32,
        [SDS_CODEC_LZF] = undo_lzf,
        [SDS_CODEC_LZ4] = undo_lz4,
        [SDS_CODEC_BLOSC] = undo_blosc,
        [SDS_CODEC_BZIP2] = undo_bzip2,
        [SDS_CODEC_BITSHUFFLE] = undo_bitshuffle,
        [SDS_CODEC_BITSHUFFLE_LZ4] = undo_bitshuffle_lz4,
    };
    *produced = 0;
    if (!is_codec(filter)) return SDS_EINVAL;
    if (!sds_filter_keeps_state(filter))
        return of_codec[filter->codec](filter, in, n, out, capacity, produced);
    void *own = state == NULL ? sds_filter_begin(filter) : NULL;
    if (state == NULL && own == NULL) return SDS_ENOMEM;
    const sds_status status = with_state[filter->codec].undo(filter, state == NULL ? own : state,
                                                             in, n, out, capacity, produced);
    sds_filter_end(filter, own);
    return status;
}
