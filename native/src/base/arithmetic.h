/* Arithmetic that C leaves out. Internal. */
#ifndef SDS_ARITHMETIC_H
#define SDS_ARITHMETIC_H

#include <stdint.h>

static inline int64_t sds__greatest_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* INT64_MAX where it does not fit. */
static inline int64_t sds__least_common_multiple(int64_t a, int64_t b)
{
    int64_t product;
    if (__builtin_mul_overflow(a / sds__greatest_common_divisor(a, b), b, &product))
        return INT64_MAX;
    return product;
}

static inline int64_t sds__least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t sds__greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t sds__divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

#endif
