/* A byte buffer that grows, and the little-endian fields and variable-length integers in it.
 *
 * A buffer or view that failed (no memory, bytes that end too early) stays failed and yields
 * zeros: callers check once, at the end. */
#ifndef SDS_SRC_BYTES_H
#define SDS_SRC_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "SDS formats are little-endian and their arrays are used in place"
/* One more value in a hash. */
static inline uint64_t sds__mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

#endif

typedef struct sds__buffer {
    uint8_t *bytes;
    size_t n;
    size_t capacity;
    int failed;
} sds__buffer;

static inline void sds__buffer_free(sds__buffer *buffer)
{
    free(buffer->bytes);
    memset(buffer, 0, sizeof *buffer);
}

/* Room for n more bytes; NULL where there is none. */
static inline uint8_t *sds__buffer_extend(sds__buffer *buffer, size_t n)
{
    if (buffer->failed) return NULL;
    if (buffer->capacity - buffer->n < n) {
        size_t capacity = buffer->capacity < 256 ? 256 : buffer->capacity;
        while (capacity - buffer->n < n) {
            if (capacity > SIZE_MAX / 2) break;
            capacity *= 2;
        }
        uint8_t *grown = capacity - buffer->n < n ? NULL : realloc(buffer->bytes, capacity);
        if (grown == NULL) {
            buffer->failed = 1;
            return NULL;
        }
        buffer->bytes = grown;
        buffer->capacity = capacity;
    }
    uint8_t *at = buffer->bytes + buffer->n;
    buffer->n += n;
    return at;
}

static inline void sds__put(sds__buffer *buffer, const void *bytes, size_t n)
{
    uint8_t *at = sds__buffer_extend(buffer, n);
    if (at != NULL && n > 0) memcpy(at, bytes, n);
}

static inline void sds__put_u8(sds__buffer *buffer, uint8_t value)
{
    sds__put(buffer, &value, 1);
}

/* Seven bits a byte, least significant first, the top bit set on all but the last byte. */
#define SDS__VARINT_BYTES 10 /* at most */

/* Return the end of it. */
static inline uint8_t *sds__code_varint(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static inline void sds__put_varint(sds__buffer *buffer, uint64_t value)
{
    uint8_t coded[SDS__VARINT_BYTES];
    sds__put(buffer, coded, (size_t)(sds__code_varint(coded, value) - coded));
}

/* 0, -1, 1, -2, ... become 0, 1, 2, 3, ... so that small numbers of either sign stay short. */
static inline uint64_t sds__zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
}

static inline int64_t sds__unzigzag(uint64_t value)
{
    return (int64_t)((value >> 1) ^ (0 - (value & 1)));
}

static inline uint8_t *sds__code_zigzag(uint8_t *at, int64_t value)
{
    return sds__code_varint(at, sds__zigzag(value));
}

static inline void sds__put_zigzag(sds__buffer *buffer, int64_t value)
{
    sds__put_varint(buffer, sds__zigzag(value));
}

/* Differences wrap, so that any two 64-bit values have one and it always adds back. */
static inline int64_t sds__wrap_sub(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static inline int64_t sds__wrap_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline void sds__put_string(sds__buffer *buffer, const char *text)
{
    const size_t n = text == NULL ? 0 : strlen(text);
    sds__put_varint(buffer, n);
    sds__put(buffer, text, n);
}

/* Bytes being decoded. */
typedef struct sds__view {
    const uint8_t *at;
    size_t left;
    int failed;
} sds__view;

static inline const uint8_t *sds__take(sds__view *view, size_t n)
{
    if (view->failed || view->left < n) {
        view->failed = 1;
        return NULL;
    }
    const uint8_t *at = view->at;
    view->at += n;
    view->left -= n;
    return at;
}

static inline uint8_t sds__take_u8(sds__view *view)
{
    const uint8_t *at = sds__take(view, 1);
    return at == NULL ? 0 : *at;
}

static inline uint64_t sds__take_varint(sds__view *view)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = sds__take_u8(view);
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (view->failed) return 0;
        if (byte < 0x80) return value;
    }
    view->failed = 1;
    return 0;
}

static inline int64_t sds__take_zigzag(sds__view *view)
{
    return sds__unzigzag(sds__take_varint(view));
}

/* One more value in a hash. */
static inline uint64_t sds__mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

#endif
