// Read filter: decide whether native HDF5 must serve a read, mostly without a call into HDF5.
//
// Most reads are of few bytes and HDF5's to carry out; a question to HDF5 costs a tenth of the
// smallest. The first of these states that holds decides:
//
// clang-format off
// | state of the read | read by |
// |---|---|
// | the dataset is described, and neither replica nor engine may serve it | HDF5 |
// | no open file has a table, and none is open for the engine | HDF5 |
// | the dataset has replicas; or is not described yet, and an open file has a table | to be chosen |
// | behind many through its handle that could gain nothing | HDF5; one in eight goes on |
// | the same, of a read that the trace looks at afterwards (look_behind) | HDF5 |
// | of fewer than min_elements, in one run, or within HDF5's sieve buffer | HDF5 |
// | the first of its file, of few requests, and the dataset is not described yet | HDF5 |
// | any other | to be chosen |
// clang-format on
//
// is_left_to_hdf5 knows the first five without a question to HDF5, gains_nothing all but the fourth
// and fifth.
#pragma once

#include <stdint.h>

#include "branch.h"
#include "object.h"
#include "open_dataset.h"
#include "open_file.h"
#include "original_file.h"

namespace sds::vol
{

// Reads of fewer elements never go to the engine.
constexpr int64_t min_elements = 17;

constexpr uint32_t least_patience = 32;
constexpr uint32_t most_patience = 1U << 20;

inline uint32_t patience_of(const SmallReads &reads)
{
    return least_patience + __atomic_load_n(&reads.patience, __ATOMIC_RELAXED);
}

// Whether there were enough for the next one to be expected to be like them.
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

// True if HDF5 alone reads. To be asked once for each read. dataset: nullptr where it is not
// described yet. seen_after: look_behind is to see the read.
inline bool is_left_to_hdf5(Object &object, const OpenDataset *dataset, bool seen_after)
{
    if (dataset && !dataset->redirection) return true;
    if (mostly(!any_tables()) && !any_originals()) return true;
    if (!dataset && any_tables()) return false;
    return mostly(seen_after ? are_many(object.small_reads) : is_passed_over(object.small_reads));
}

// The same by what HDF5 says of the selection.
bool gains_nothing(Object &object, const OpenDataset *dataset, hid_t file_space);
// Of a bare dataset, whose reads are not counted. window_elements: within HDF5's sieve buffer.
bool gains_nothing(const Host &host, hid_t file_space, int64_t window_elements);

// Have a read be seen that neither of them is asked of.
void see_read(const Object &object, const OpenDataset &dataset, hid_t file_space);

// True of the first read of a file that could gain, if HDF5 carries it out with so few requests
// that to describe the dataset would take as long: programs that read many small files once come no
// further. Counts the read as judged.
bool is_first_and_small(const Object &object, hid_t file_space);

// As gains_nothing, of a read that HDF5 has carried out, by the indices of its first and last
// elements: for the next one.
void look_behind(Object &object, const OpenDataset &dataset, int64_t n_elements,
                 const int64_t first[], const int64_t last[]);

} // namespace sds::vol
