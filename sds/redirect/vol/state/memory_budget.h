// One sum for what SDS takes of a process's memory in large pieces, and a bound for it.
//
// Each use has a bound of its own as well, but a program may have use for all of them at once:
// replicas that HDF5 opens and decodes for many threads, and tens of thousands of datasets that are
// traced in turn. Whoever is refused does without: the original serves, or reads are traced as
// records of their own.
#pragma once

#include <stdint.h>

namespace sds::vol
{

enum class MemoryUse {
    lasting, // not given back soon: what HDF5 keeps in malloc's memory
    traced,  // likewise, what is traced in turn: takes what nothing else keeps, and never waits
    known,   // known_datasets.h: for all of them there is always room, but while reads use it
    passing, // for a read, and kept for the next ones while nothing else needs it
    spare,   // for a read that goes on without: takes what nothing else keeps, until it ends
};

// Of all. Reads may go beyond while they last, and do not keep what they have taken where little is
// left. With threads' stacks and some small tables, a process has 8 MiB at most.
constexpr int64_t most_memory_bytes = 93 << 16;
constexpr int64_t most_known_bytes = 9 << 18;
constexpr int64_t most_lasting_bytes = most_memory_bytes - most_known_bytes;

// Whether `n_bytes` more may be used; then they are counted. Where there is no room else, what
// is kept for later reads is given back.
bool take_memory(MemoryUse use, int64_t n_bytes);
void give_memory(MemoryUse use, int64_t n_bytes);
// In the child of a fork, where no read of the parent's ends: what is spare is not even mapped.
void forget_spare_memory();
// Count what a read cannot do without.
void count_passing_memory(int64_t n_bytes);
// Whether a read may take `n_bytes` more, now; likewise.
bool is_memory_left(int64_t n_bytes);
// Whether what a read has taken may be kept for later ones.
bool may_keep_memory();

} // namespace sds::vol
