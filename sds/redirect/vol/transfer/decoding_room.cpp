#include "decoding_room.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory_budget.h"
#include "shared_state.h"

namespace sds::vol
{
namespace
{

constexpr size_t unit = 64 << 10;
constexpr size_t most_kept = 1 << 20; // of all blocks; beyond, they are given back after a read

using Block = DecodingBlock;

// All that follows is touched with the lock held.
constexpr int n_blocks = 8;
Block blocks[n_blocks];

bool is_used(const Block &block, pid_t process)
{
    return block.user == process;
}

void empty(Block &block)
{
    if (block.size > 0) {
        munmap(block.bytes, block.size);
        give_memory(MemoryUse::passing, static_cast<int64_t>(block.size));
    }
    drop_state(block);
    block = {};
}

// The smallest block in nobody's use that is large enough, else any in nobody's use; negative
// where there is none.
int find_block(size_t size, pid_t process)
{
    int found = -1;
    for (int i = 0; i < n_blocks; i++) {
        if (is_used(blocks[i], process)) continue;
        if (found < 0) found = i;
        const bool fits = blocks[i].size >= size, found_fits = blocks[found].size >= size;
        if (fits != found_fits ? fits : fits && blocks[i].size < blocks[found].size) found = i;
    }
    return found;
}

size_t size_of_all()
{
    size_t total = 0;
    for (const Block &block : blocks)
        total += block.size;
    return total;
}

// Empty blocks in nobody's use until there is room for one more of a size.
bool make_room(size_t size, pid_t process)
{
    size_t total = size + size_of_all();
    for (Block &block : blocks) {
        if (total <= static_cast<size_t>(max_decoding_bytes)) break;
        if (is_used(block, process)) continue;
        total -= block.size;
        empty(block);
    }
    return total <= static_cast<size_t>(max_decoding_bytes);
}

bool map(Block &block, size_t size)
{
    const int saved_errno = errno;
    void *mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved_errno;
    if (mapped == MAP_FAILED) return false;
    block.bytes = static_cast<char *>(mapped);
    block.size = size;
    return true;
}

bool allocate(Block &block, size_t size, pid_t process)
{
    empty(block);
    if (!make_room(size, process) || !take_memory(MemoryUse::passing, static_cast<int64_t>(size)))
        return false;
    if (map(block, size)) return true;
    give_memory(MemoryUse::passing, static_cast<int64_t>(size));
    return false;
}

} // namespace

bool DecodingBuffer::take(int64_t n_bytes)
{
    if (bytes_) return true;
    const size_t size = (static_cast<size_t>(n_bytes) + unit - 1) / unit * unit;
    const pid_t process = getpid();
    SharedStateLock lock;
    const int found = find_block(size, process);
    if (found < 0) return false;
    Block &block = blocks[found];
    if (block.user != 0) drop_state(block); // a fork has left it as it was, at work
    if (block.size < size && !allocate(block, size, process)) return false;
    block.user = process;
    slot_ = found;
    bytes_ = block.bytes;
    return true;
}

bool DecodingBuffer::take_own(int64_t n_bytes)
{
    if (bytes_) return true;
    if (!map(own_, static_cast<size_t>(n_bytes))) return false;
    bytes_ = own_.bytes;
    return true;
}

DecodingBlock &DecodingBuffer::block()
{
    return slot_ < 0 ? own_ : blocks[slot_]; // which nobody else touches meanwhile
}

void drop_state(DecodingBlock &block)
{
    sds_filter_end(&block.filter, block.state);
    block.state = nullptr;
}

void *state_of(DecodingBlock &block, const sds_filter &filter)
{
    if (block.state && block.filter.codec != filter.codec) drop_state(block);
    if (!block.state) {
        block.filter = filter;
        // A child that is forked at this moment finds both, or none.
        __atomic_store_n(&block.state, sds_filter_begin(&filter), __ATOMIC_RELEASE);
    }
    return block.state;
}

DecodingBuffer::~DecodingBuffer()
{
    if (own_.size > 0) munmap(own_.bytes, own_.size);
    drop_state(own_);
    if (slot_ < 0) return;
    SharedStateLock lock;
    blocks[slot_].user = 0;
    if (size_of_all() > most_kept || !may_keep_memory()) empty(blocks[slot_]);
}

void drop_decoding_buffers()
{
    const pid_t process = getpid();
    for (Block &block : blocks)
        if (!is_used(block, process)) empty(block);
}

} // namespace sds::vol
