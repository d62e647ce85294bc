#include "known_datasets.h"

#include <errno.h>
#include <sys/mman.h>

#include "memory_budget.h"
#include "open_dataset.h"
#include "redirect.h"
#include "shared_state.h"

namespace sds::vol
{
namespace
{

// A table with open addressing, of one mapping, so that whoever finds it finds it whole.
struct Table {
    uint32_t n;
    uint32_t n_places;
    KnownDataset place[];
};
constexpr uint32_t least_places = 1024;
constexpr uint32_t most_places = most_known_bytes / sizeof(KnownDataset);

Table *table = nullptr;
uint32_t n_table_places = 0; // for those who look without the lock

size_t bytes_of(uint32_t n_places)
{
    return sizeof(Table) + sizeof(KnownDataset) * n_places;
}

// At most seven eighths are taken: a search ends at an empty place.
bool is_full(const Table &of)
{
    return of.n >= of.n_places / 8 * 7;
}

uint32_t home_of(uint32_t n_places, const void *bare)
{
    const uint64_t hash = reinterpret_cast<uintptr_t>(bare) * UINT64_C(0x9E3779B97F4A7C15);
    return static_cast<uint32_t>((hash >> 32) * n_places >> 32);
}

uint32_t behind(const Table &of, uint32_t at)
{
    return at + 1 < of.n_places ? at + 1 : 0;
}

// How far a place lies behind another one, around the end.
uint32_t distance(const Table &of, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + of.n_places - from;
}

// Where it is, or the empty place where it would be.
uint32_t find(const Table &in, const void *bare)
{
    uint32_t at = home_of(in.n_places, bare);
    while (in.place[at].bare && in.place[at].bare != bare)
        at = behind(in, at);
    return at;
}

int64_t entry_bytes(uint32_t n_places)
{
    return static_cast<int64_t>(sizeof(KnownDataset)) * n_places;
}

// Move all into a table of this size. Where there is no memory, the old one stays.
void resize(uint32_t n_places)
{
    const int64_t more_bytes = entry_bytes(n_places) - (table ? entry_bytes(table->n_places) : 0);
    if (more_bytes > 0 && !take_memory(MemoryUse::known, more_bytes)) return;
    const int saved_errno = errno;
    void *room = mmap(nullptr, bytes_of(n_places), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved_errno;
    if (room == MAP_FAILED) {
        if (more_bytes > 0) give_memory(MemoryUse::known, more_bytes);
        return;
    }
    auto *made = static_cast<Table *>(room);
    made->n_places = n_places;
    Table *old = table;
    if (old) {
        made->n = old->n;
        for (uint32_t i = 0; i < old->n_places; i++)
            if (old->place[i].bare) made->place[find(*made, old->place[i].bare)] = old->place[i];
    }
    __atomic_store_n(&n_table_places, n_places, __ATOMIC_RELAXED);
    __atomic_store_n(&table, made, __ATOMIC_RELEASE);
    if (old) munmap(old, bytes_of(old->n_places));
    if (more_bytes < 0) give_memory(MemoryUse::known, -more_bytes);
}

// Leave no gap before one that belongs further to the front.
void remove(Table &from, uint32_t at)
{
    for (uint32_t next = behind(from, at); from.place[next].bare; next = behind(from, next)) {
        const uint32_t home = home_of(from.n_places, from.place[next].bare);
        if (distance(from, home, next) < distance(from, at, next)) continue;
        from.place[at] = from.place[next];
        at = next;
    }
    from.place[at] = {};
    from.n--;
}

// False where an axis has more than its share of the bits.
bool pack_extent(const StoredDataset &stored, uint64_t &out)
{
    out = 0;
    if (stored.rank == 0) return true;
    const int bits = 64 / stored.rank;
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        const auto n = static_cast<uint64_t>(stored.extent[axis]);
        if (n >> (bits - 1)) return false;
        out |= n << (axis * bits);
    }
    return true;
}

uint8_t log2_of(int64_t n)
{
    return n > 0 ? static_cast<uint8_t>(63 - __builtin_clzll(static_cast<uint64_t>(n)))
                 : uint8_t{0};
}

} // namespace

void extent_of(const KnownDataset &known, int64_t extent[most_known_rank])
{
    if (known.rank == 0) return;
    const int bits = 64 / known.rank;
    const uint64_t mask = (uint64_t{1} << (bits - 1)) - 1;
    for (int axis = 0; axis < known.rank; axis++)
        extent[axis] = static_cast<int64_t>(known.extent >> (axis * bits) & mask);
}

void expect_known(const void *bare)
{
    // Without the lock, what is found may be given back at this moment: nothing of it is read.
    const Table *of = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
    const uint32_t n_places = __atomic_load_n(&n_table_places, __ATOMIC_RELAXED);
    if (of) __builtin_prefetch(&of->place[home_of(n_places, bare)]);
}

bool find_known(const void *bare, KnownDataset &out)
{
    SharedStateLock lock;
    if (!table) return false;
    out = table->place[find(*table, bare)];
    return out.bare;
}

void take_known(const void *bare)
{
    if (!table) return;
    const uint32_t at = find(*table, bare);
    if (!table->place[at].bare) return;
    remove(*table, at);
    if (table->n == 0) {
        Table *old = table;
        __atomic_store_n(&table, static_cast<Table *>(nullptr), __ATOMIC_RELEASE);
        give_memory(MemoryUse::known, entry_bytes(old->n_places));
        munmap(old, bytes_of(old->n_places));
    } else if (table->n_places / 2 >= least_places && table->n < table->n_places / 8) {
        resize(table->n_places / 2);
    }
}

void keep_known(const void *bare, const OpenDataset &dataset)
{
    const StoredDataset &stored = dataset.description;
    KnownDataset known = {};
    if (!dataset.is_traced || dataset.trace_id == 0 || has_replicas(dataset) ||
        stored.rank > most_known_rank || !pack_extent(stored, known.extent))
        return;
    known.bare = bare;
    known.trace_id = dataset.trace_id;
    known.rank = static_cast<uint8_t>(stored.rank);
    known.window_log2 = log2_of(dataset.window_elements);
    known.by_engine_too = dataset.redirection && !has_own_chunks(dataset);
    known.reads_boxes = dataset.reads_boxes;
    if (!table) resize(least_places);
    if (!table) return;
    if (is_full(*table) && table->n_places < most_places)
        resize(2 * table->n_places < most_places ? 2 * table->n_places : most_places);
    KnownDataset &place = table->place[find(*table, bare)];
    if (!place.bare) {
        if (is_full(*table)) return;
        table->n++;
    }
    place = known;
}

} // namespace sds::vol
