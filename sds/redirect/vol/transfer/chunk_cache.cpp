#include "chunk_cache.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "decoding_room.h"
#include "memory_budget.h"

namespace sds::vol
{
namespace
{

// Two, for programs that go through two replicas together, and whose boxes are not too large.
constexpr int n_blocks = 2;

struct Block {
    bool busy;        // a thread uses it
    uint64_t opening; // whose dataset it is of; 0: empty
    int32_t rank;
    int64_t start[SDS_MAX_RANK];
    int64_t count[SDS_MAX_RANK];
    uint64_t used; // grows with time
    char *bytes;   // nullptr: none
    size_t size;
};
Block blocks[n_blocks];
uint64_t n_used = 0;

bool take(Block &block)
{
    return !__atomic_test_and_set(&block.busy, __ATOMIC_ACQUIRE);
}

void give(Block &block)
{
    __atomic_clear(&block.busy, __ATOMIC_RELEASE);
}

// Of a block that was taken, as the next one.
bool holds(const Block &block, const ReplicaDataset &replica, const sds_hyperslab &box)
{
    const size_t n = static_cast<size_t>(box.rank) * sizeof(int64_t);
    return block.opening == replica.opening && block.rank == box.rank &&
           memcmp(block.start, box.start, n) == 0 && memcmp(block.count, box.count, n) == 0;
}

void empty(Block &block)
{
    if (block.bytes) {
        munmap(block.bytes, block.size);
        give_memory(MemoryUse::passing, static_cast<int64_t>(block.size));
    }
    block.bytes = nullptr;
    __atomic_store_n(&block.size, 0, __ATOMIC_RELAXED);
    block.opening = 0;
}

// Empty the others, where all would hold more than they may. False where they are in use.
bool make_room(const Block &taken, size_t size)
{
    for (Block &block : blocks) {
        if (&block == &taken || __atomic_load_n(&block.size, __ATOMIC_RELAXED) + size <=
                                    static_cast<size_t>(max_cached_bytes))
            continue;
        if (!take(block)) return false;
        empty(block);
        give(block);
    }
    return true;
}

// Whether there is memory for it, and, besides, to decode in what is to be put there.
bool take_memory_of_box(const ReplicaDataset &replica, size_t size)
{
    const int64_t decoding = replica.filters.by_core ? max_decoding_bytes : 0;
    return is_memory_left(static_cast<int64_t>(size) + decoding) &&
           take_memory(MemoryUse::passing, static_cast<int64_t>(size));
}

enum class Allocated { yes, in_use, no_memory };

Allocated allocate(Block &block, const ReplicaDataset &replica, int64_t n_bytes)
{
    constexpr size_t unit = 64 << 10;
    const size_t size = (static_cast<size_t>(n_bytes) + unit - 1) / unit * unit;
    if (block.size >= size) return Allocated::yes;
    empty(block);
    if (!make_room(block, size)) return Allocated::in_use;
    if (!take_memory_of_box(replica, size)) return Allocated::no_memory;
    const int saved_errno = errno;
    void *mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved_errno;
    if (mapped == MAP_FAILED) {
        give_memory(MemoryUse::passing, static_cast<int64_t>(size));
        return Allocated::no_memory;
    }
    block.bytes = static_cast<char *>(mapped);
    __atomic_store_n(&block.size, size, __ATOMIC_RELAXED);
    return Allocated::yes;
}

// Boxes that could not be kept, by their hashes: some of the latest.
constexpr int n_refused = 64;
uint64_t refused[n_refused];

void mix(uint64_t &hash, int64_t value)
{
    hash = (hash ^ static_cast<uint64_t>(value)) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 29;
}

uint64_t hash_of(const ReplicaDataset &replica, const sds_hyperslab &box)
{
    uint64_t hash = replica.opening;
    for (int32_t axis = 0; axis < box.rank; axis++) {
        mix(hash, box.start[axis]);
        mix(hash, box.count[axis]);
    }
    return hash;
}

// Whether it was the same before.
bool refuse(const ReplicaDataset &replica, const sds_hyperslab &box)
{
    const uint64_t hash = hash_of(replica, box);
    return __atomic_exchange_n(&refused[hash >> 58], hash, __ATOMIC_RELAXED) == hash;
}

// The block that holds the box, or else the one that was not used for longest; taken. Negative
// where all are in use.
int take_block(const ReplicaDataset &replica, const sds_hyperslab &box)
{
    int found = -1;
    bool is_held = false;
    for (int i = 0; i < n_blocks && !is_held; i++) {
        if (!take(blocks[i])) continue;
        is_held = holds(blocks[i], replica, box);
        if (found < 0 || is_held || blocks[i].used < blocks[found].used) {
            if (found >= 0) give(blocks[found]);
            found = i;
        } else {
            give(blocks[i]);
        }
    }
    return found;
}

} // namespace

CachedBox::CachedBox(const ReplicaDataset &replica, const sds_hyperslab &box, int64_t n_bytes)
    : replica_(replica), box_(box), block_(take_block(replica, box)), bytes_(nullptr),
      is_filled_(false), is_refused_again_(false)
{
    if (block_ < 0) return;
    Block &block = blocks[block_];
    block.used = __atomic_add_fetch(&n_used, 1, __ATOMIC_RELAXED);
    is_filled_ = holds(block, replica, box);
    if (!is_filled_) block.opening = 0;
    if (is_filled_ || find_memory(n_bytes)) bytes_ = block.bytes;
}

bool CachedBox::find_memory(int64_t n_bytes)
{
    const Allocated outcome = allocate(blocks[block_], replica_, n_bytes);
    if (outcome == Allocated::in_use || (outcome == Allocated::yes && may_keep_memory()))
        return outcome == Allocated::yes;
    is_refused_again_ = refuse(replica_, box_);
    return outcome == Allocated::yes && !is_refused_again_;
}

CachedBox::~CachedBox()
{
    if (block_ < 0) return;
    if (!may_keep_memory()) empty(blocks[block_]);
    give(blocks[block_]);
}

void CachedBox::set_filled()
{
    Block &block = blocks[block_];
    const size_t n = static_cast<size_t>(box_.rank) * sizeof(int64_t);
    block.opening = replica_.opening;
    block.rank = box_.rank;
    memcpy(block.start, box_.start, n);
    memcpy(block.count, box_.count, n);
    is_filled_ = true;
}

void drop_cached_boxes()
{
    for (Block &block : blocks) {
        if (!take(block)) continue;
        empty(block);
        give(block);
    }
}

} // namespace sds::vol
