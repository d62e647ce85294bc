/* What the C tests share: a check that says where it failed, and a generator of random numbers. */
#ifndef SDS_TESTS_CHECK_H
#define SDS_TESTS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* xorshift64*: the same numbers everywhere. */
static inline uint64_t random_u64(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545F4914F6CDD1D);
}

/* low <= result <= high */
static inline int64_t random_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(random_u64(state) % (uint64_t)(high - low + 1));
}

#endif
