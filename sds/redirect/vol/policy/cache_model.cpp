#include "cache_model.h"

#include <stdlib.h>

#include "memory_budget.h"
#include "sds/geometry.h"

namespace sds::vol
{

// Chunks are counted as they are decoded, from one on.
struct Place {
    uint32_t chunk;  // the lower half of its hash
    uint32_t number; // when it was decoded or asked for last; 0: none is here
};

struct CacheModel {
    int64_t n_bytes;     // of all this, as counted by memory_budget.h
    uint32_t room;       // chunks
    uint32_t number;     // of the chunk that was decoded last
    uint32_t place_bits; // of the hash
    Place places[];
};

namespace
{

// 32 KiB of places, four of them for each chunk that there is room for.
constexpr int64_t most_room = 1 << 10;
// Of all models together: memory that tables of replicas and traces need, too.
constexpr int64_t most_bytes = 512 << 10;
int64_t n_bytes_of_all = 0;

// So many times as many chunks are followed in one read; for others it matters little what is held.
constexpr int64_t most_times = 4;

// A chunk takes one of so many places side by side: one of a cache line, nearly always empty.
constexpr uint64_t places_tried = 8;

uint64_t hash_of(int32_t rank, const int64_t index[])
{
    uint64_t hash = 0;
    for (int32_t axis = 0; axis < rank; axis++) {
        hash = (hash ^ static_cast<uint64_t>(index[axis])) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return hash * UINT64_C(0xBF58476D1CE4E5B9);
}

// One chunk is asked for; returns whether it is held.
bool ask(CacheModel &model, uint64_t hash)
{
    const uint64_t mask = (uint64_t{1} << model.place_bits) - 1;
    const auto chunk = static_cast<uint32_t>(hash);
    Place *taken = nullptr; // the chunk's, else that of the one asked for least lately
    uint32_t greatest = 0;
    for (uint64_t i = hash >> 32; i < (hash >> 32) + places_tried; i++) {
        Place &place = model.places[i & mask];
        const bool is_empty = place.number == 0;
        const uint32_t age = is_empty ? UINT32_MAX : model.number - place.number;
        if (!is_empty && place.chunk == chunk && age < model.room) {
            place.number = model.number;
            return true;
        }
        if (!taken || age > greatest) {
            taken = &place;
            greatest = age;
        }
    }
    if (++model.number == 0) model.number = 1;
    *taken = {chunk, model.number};
    return false;
}

bool take(int64_t n_bytes)
{
    const int64_t n = __atomic_add_fetch(&n_bytes_of_all, n_bytes, __ATOMIC_RELAXED);
    if (n <= most_bytes && take_memory(MemoryUse::lasting, n_bytes)) return true;
    __atomic_sub_fetch(&n_bytes_of_all, n_bytes, __ATOMIC_RELAXED);
    return false;
}

void give(int64_t n_bytes)
{
    give_memory(MemoryUse::lasting, n_bytes);
    __atomic_sub_fetch(&n_bytes_of_all, n_bytes, __ATOMIC_RELAXED);
}

bool advance(int32_t rank, const int64_t first[], const int64_t last[], int64_t index[])
{
    for (int32_t axis = rank - 1; axis >= 0; axis--) {
        if (index[axis]++ < last[axis]) return true;
        index[axis] = first[axis];
    }
    return false;
}

} // namespace

CacheModel *make_cache_model(int64_t room)
{
    if (room < 1 || room > most_room) return nullptr;
    uint32_t place_bits = 3;
    while (int64_t{1} << place_bits < 4 * room)
        place_bits++;
    const size_t n_bytes = sizeof(CacheModel) + (sizeof(Place) << place_bits);
    const auto counted = static_cast<int64_t>(n_bytes);
    if (!take(counted)) return nullptr;
    auto *model = static_cast<CacheModel *>(calloc(1, n_bytes));
    if (!model) {
        give(counted);
        return nullptr;
    }
    model->n_bytes = counted;
    model->room = static_cast<uint32_t>(room);
    model->place_bits = place_bits;
    return model;
}

void release_cache_model(CacheModel *model)
{
    if (!model) return;
    give(model->n_bytes);
    free(model);
}

Asked ask_for(CacheModel &model, int32_t rank, const int64_t first[], const int64_t last[])
{
    int64_t n = 1, n_held = 0, index[SDS_MAX_RANK];
    for (int32_t axis = 0; axis < rank; axis++) {
        index[axis] = first[axis];
        if (__builtin_mul_overflow(n, last[axis] - first[axis] + 1, &n)) n = INT64_MAX;
    }
    if (n < 1 || n > most_times * model.room) return {0, 0};
    do {
        n_held += ask(model, hash_of(rank, index));
    } while (advance(rank, first, last, index));
    return {n, n_held};
}

} // namespace sds::vol
