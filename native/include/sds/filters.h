/* Undoes the filters that HDF5 applied to a chunk, without HDF5.
 *
 * Shuffling and checksums are the core's own. Codecs are functions of libraries that the caller
 * found: the core links none of them. Every function is safe for bytes that someone made up: it
 * stays within its buffers and fails with SDS_EFORMAT. */
#ifndef SDS_FILTERS_H
#define SDS_FILTERS_H

#include <stddef.h>
#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SDS_MAX_FILTERS 32 /* HDF5's own bound: the filter mask has as many bits */
#define SDS_FILTER_FUNCTIONS 4
#define SDS_FILTER_OPTIONS 3

/* XX(name, functions that it needs, in this order) */
#define SDS_CODEC_MAP(XX)                                                                          \
    XX(SHUFFLE, "")                                                                                \
    XX(FLETCHER32, "")                                                                             \
    XX(DEFLATE, "inflateInit_ inflate inflateEnd")                                                 \
    XX(LIBDEFLATE, "libdeflate_alloc_decompressor libdeflate_zlib_decompress_ex "                  \
                   "libdeflate_free_decompressor")                                                 \
    XX(LZF, "lzf_decompress")                                                                      \
    XX(LZ4, "LZ4_decompress_safe")                                                                 \
    XX(ZSTD, "ZSTD_createDCtx ZSTD_decompressDCtx ZSTD_freeDCtx ZSTD_getFrameContentSize")         \
    XX(BLOSC, "blosc_cbuffer_validate blosc_decompress_ctx")                                       \
    XX(BZIP2, "BZ2_bzBuffToBuffDecompress")                                                        \
    XX(BITSHUFFLE, "bshuf_bitunshuffle")                                                           \
    XX(BITSHUFFLE_LZ4, "bshuf_bitunshuffle LZ4_decompress_safe")                                   \
    XX(BITSHUFFLE_ZSTD, "ZSTD_createDCtx ZSTD_decompressDCtx ZSTD_freeDCtx bshuf_bitunshuffle")

typedef enum sds_codec {
#define XX(name, functions) SDS_CODEC_##name,
    SDS_CODEC_MAP(XX)
#undef XX
        SDS_N_CODECS
} sds_codec;

typedef void (*sds_filter_function)(void);

typedef struct sds_filter {
    sds_codec codec;
    uint32_t option[SDS_FILTER_OPTIONS]; /* SHUFFLE: bytes of an element; BITSHUFFLE: that, and
                                            elements of a block, 0 for the library's choice */
    sds_filter_function function[SDS_FILTER_FUNCTIONS];
} sds_filter;

/* What a thread undoes a filter with from chunk to chunk, so that it takes no memory for each; NULL
 * where the filter keeps nothing, or memory is exhausted. To be ended by the same filter. */
int sds_filter_keeps_state(const sds_filter *filter);
void *sds_filter_begin(const sds_filter *filter);
void sds_filter_end(const sds_filter *filter, void *state);

/* Undo one filter.
 * state: of sds_filter_begin, for one thread at a time; NULL: made for this call, if needed.
 * produced: bytes written, at most capacity. in and out do not overlap.
 * SDS_EFORMAT: these bytes are not what the filter writes, or do not fit. SDS_ENOMEM. */
sds_status sds_filter_undo(const sds_filter *filter, void *state, const void *in, size_t n,
                           void *out, size_t capacity, size_t *produced);

/* Put the bytes of n / element_bytes elements together again that are stored byte by byte; what is
 * left of n stays behind them. */
void sds_unshuffle(size_t element_bytes, size_t n, const void *in, void *out);

/* HDF5's Fletcher checksum: of 16-bit big-endian words, an odd byte being the upper one of its. */
uint32_t sds_fletcher32(const void *bytes, size_t n);

#ifdef __cplusplus
}
#endif
#endif
