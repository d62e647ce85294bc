// When a read is worth a look: whether the engine could carry it out faster.
//
// HDF5 says how much a selection holds for a tenth of what the smallest read costs. Reads of one
// dataset tend to be alike: after some in a row that could gain nothing, one in eight is looked at;
// where reads are traced, all are, but afterwards, when the trace has asked.
#pragma once

#include <stdint.h>

#include "branch.h"

namespace sds::vol
{

// Of the reads through one handle of a dataset. Threads may count past each other: what is counted
// decides nothing but how often HDF5 is asked.
struct SmallReads {
    uint32_t in_a_row; // that could gain nothing
    uint32_t patience; // beyond the least: how many before they are passed over
};

constexpr uint32_t least_patience = 32;
constexpr uint32_t most_patience = 1U << 20;

inline uint32_t patience_of(const SmallReads &reads)
{
    return least_patience + __atomic_load_n(&reads.patience, __ATOMIC_RELAXED);
}

// Whether there were so many that the next one may be expected to be like them.
inline bool are_many(const SmallReads &reads)
{
    return __atomic_load_n(&reads.in_a_row, __ATOMIC_RELAXED) >= patience_of(reads);
}

// Whether the next read is left to HDF5 without a look, where nobody looks at it afterwards either.
// To be asked once for each read.
inline bool is_passed_over(SmallReads &reads)
{
    const uint32_t n = __atomic_load_n(&reads.in_a_row, __ATOMIC_RELAXED);
    if (n < patience_of(reads)) return false;
    __atomic_store_n(&reads.in_a_row, n < UINT32_MAX ? n + 1 : 4 * most_patience, __ATOMIC_RELAXED);
    // Which one of eight changes from eight to eight, lest a program that reads much every nth time
    // always be met between.
    uint32_t which = (n >> 3) * 0x9E3779B9U;
    which = (which ^ which >> 16) * 0x85EBCA6BU;
    return mostly(which >> 29 != (n & 7));
}

// A read was looked at. Where it could gain after it could have been passed over, so many small
// ones in a row say little of the next: then it takes four times as many.
inline void count_look(SmallReads &reads, bool may_gain)
{
    const uint32_t n = __atomic_load_n(&reads.in_a_row, __ATOMIC_RELAXED);
    const uint32_t patience = patience_of(reads);
    if (!may_gain && n < patience) __atomic_store_n(&reads.in_a_row, n + 1, __ATOMIC_RELAXED);
    if (!may_gain) return;
    __atomic_store_n(&reads.in_a_row, 0U, __ATOMIC_RELAXED);
    if (n >= patience && patience < most_patience)
        __atomic_store_n(&reads.patience, 4 * patience - least_patience, __ATOMIC_RELAXED);
}

} // namespace sds::vol
