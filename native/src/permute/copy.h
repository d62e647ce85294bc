/* Copies of elements whose sizes are often those of a common type: the compiler knows these, and a
 * call takes longer than such a copy. Internal. */
#ifndef SDS_SRC_COPY_H
#define SDS_SRC_COPY_H

#include <stdint.h>
#include <string.h>

/* As memcpy. */
static inline void sds__copy_few(uint8_t *to, const uint8_t *from, int64_t n_bytes)
{
#define SDS__COPY_FEW(size)                                                                        \
    case size:                                                                                     \
        memcpy(to, from, size);                                                                    \
        break;
    switch (n_bytes) {
        SDS__COPY_FEW(1)
        SDS__COPY_FEW(2)
        SDS__COPY_FEW(4)
        SDS__COPY_FEW(8)
        SDS__COPY_FEW(16)
    default:
        memcpy(to, from, (size_t)n_bytes);
    }
#undef SDS__COPY_FEW
}

/* count elements of n_bytes each, at equal distances. */
static inline void sds__copy_apart(uint8_t *to, int64_t to_stride, const uint8_t *from,
                                   int64_t from_stride, int64_t count, int64_t n_bytes)
{
#define SDS__COPY_EACH(size)                                                                       \
    for (int64_t i = 0; i < count; i++)                                                            \
        memcpy(to + i * to_stride, from + i * from_stride, size);
#define SDS__COPY_APART(size)                                                                      \
    case size:                                                                                     \
        SDS__COPY_EACH(size)                                                                       \
        break;
    switch (n_bytes) {
        SDS__COPY_APART(1)
        SDS__COPY_APART(2)
        SDS__COPY_APART(4)
        SDS__COPY_APART(8)
        SDS__COPY_APART(12)
        SDS__COPY_APART(16)
        SDS__COPY_APART(24)
        SDS__COPY_APART(32)
        SDS__COPY_APART(64)
    default:
        SDS__COPY_EACH((size_t)n_bytes)
    }
#undef SDS__COPY_APART
#undef SDS__COPY_EACH
}

#endif
