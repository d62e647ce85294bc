#include "kept_chunks.h"

#include <stdlib.h>

#include "memory_budget.h"
#include "open_dataset.h"
#include "queries.h"
#include "sds/choose.h"
#include "sds/io_model.h"

namespace sds::vol
{

struct KeptChunks {
    int64_t n_bytes;  // of all this, as counted by memory_budget.h
    double native_s;  // of the reads so far, by HDF5
    double served_s;  // of those that a replica served, as it took
    double copied_s;  // by HDF5, of those among them that had been copies
    double instead_s; // as they took
    int64_t element_bytes;
    double copy_s_per_byte;
    bool busy; // a thread is using all this
    bool is_left;
    int32_t rank;
    int64_t n_on_axis[SDS_MAX_RANK];
    int64_t shape[SDS_MAX_RANK];
    uint8_t held[]; // one bit a chunk
};

namespace
{

// 4 KiB of bits: of larger datasets HDF5's cache seldom holds all.
constexpr int64_t most_chunks = 1 << 15;

// To serve a read from chunks that HDF5 holds: of any read, of each chunk, and of each run of
// elements. Measured with HDF5 2.0 on chunks of 64^3: 2 us, 0.6 us and 4 ns.
constexpr double read_s = 2e-6;
constexpr double held_chunk_s = 0.6e-6;
constexpr double run_s = 4e-9;

// What reads by replicas may have cost, of HDF5's time, when HDF5 decodes the chunks after all.
constexpr double part_at_stake = 0.1;

class Turn
{
  public:
    explicit Turn(KeptChunks &kept)
        : kept_(kept), has_it_(!__atomic_test_and_set(&kept.busy, __ATOMIC_ACQUIRE))
    {
    }
    ~Turn()
    {
        if (has_it_) __atomic_clear(&kept_.busy, __ATOMIC_RELEASE);
    }
    Turn(const Turn &) = delete;
    Turn &operator=(const Turn &) = delete;

    bool has_it() const { return has_it_; }

  private:
    KeptChunks &kept_;
    const bool has_it_;
};

// Programs may select in a space of another extent, which HDF5 refuses.
bool is_inside(const KeptChunks &kept, const sds_hyperslab &slab)
{
    for (int32_t axis = 0; axis < kept.rank; axis++) {
        int64_t end;
        if (slab.start[axis] < 0 || slab.count[axis] < 1 || slab.stride[axis] < 1 ||
            slab.block[axis] < 1 ||
            __builtin_mul_overflow(slab.count[axis] - 1, slab.stride[axis], &end) ||
            __builtin_add_overflow(end, slab.start[axis], &end) ||
            __builtin_add_overflow(end, slab.block[axis], &end) ||
            end > kept.n_on_axis[axis] * kept.shape[axis])
            return false;
    }
    return true;
}

// Whether a selection has indices of an axis within [begin, end).
bool selects(const sds_hyperslab &slab, int32_t axis, int64_t begin, int64_t end)
{
    const int64_t start = slab.start[axis], stride = slab.stride[axis];
    const int64_t until = begin - slab.block[axis]; // blocks that begin there end before
    const int64_t first = start > until ? 0 : (until - start) / stride + 1;
    return first < slab.count[axis] && start + first * stride < end;
}

// Mark the chunks from `axis` on that a selection touches. Returns how many; n_new: not held
// before.
int64_t mark(KeptChunks &kept, const sds_hyperslab &slab, int32_t axis, int64_t number,
             int64_t &n_new)
{
    if (axis == kept.rank) {
        uint8_t &byte = kept.held[number / 8];
        const auto bit = static_cast<uint8_t>(1U << (number % 8));
        n_new += (byte & bit) == 0;
        byte |= bit;
        return 1;
    }
    const int64_t shape = kept.shape[axis], start = slab.start[axis];
    const int64_t last = start + (slab.count[axis] - 1) * slab.stride[axis] + slab.block[axis] - 1;
    int64_t n = 0;
    for (int64_t i = start / shape; i <= last / shape; i++)
        if (selects(slab, axis, i * shape, (i + 1) * shape))
            n += mark(kept, slab, axis + 1, number * kept.n_on_axis[axis] + i, n_new);
    return n;
}

// Runs of elements that lie side by side, in chunks that are copied one by one.
double runs_of(const KeptChunks &kept, const sds_hyperslab &slab, double n_elements)
{
    const int32_t axis = kept.rank - 1;
    const bool is_packed = slab.count[axis] == 1 || slab.stride[axis] == slab.block[axis];
    const int64_t n = is_packed ? slab.count[axis] * slab.block[axis] : slab.block[axis];
    return n_elements / static_cast<double>(n < kept.shape[axis] ? n : kept.shape[axis]);
}

} // namespace

KeptChunks *follow_chunks(const Object &object, const StoredDataset &stored)
{
    if (stored.storage != SDS_STORAGE_CHUNKED || !stored.chunk || stored.rank < 1) return nullptr;
    size_t n_slots = 0, cache_bytes = 0;
    if (!chunk_cache_of(object, n_slots, cache_bytes)) return nullptr;
    int64_t n_chunks = 1, chunk_bytes = stored.element_bytes, all_bytes;
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        const int64_t shape = stored.chunk[axis];
        if (shape < 1 || __builtin_mul_overflow(chunk_bytes, shape, &chunk_bytes) ||
            stored.extent[axis] < 1 ||
            __builtin_mul_overflow(n_chunks, (stored.extent[axis] - 1) / shape + 1, &n_chunks))
            return nullptr;
    }
    if (n_chunks > most_chunks || static_cast<size_t>(n_chunks) > n_slots ||
        __builtin_mul_overflow(n_chunks, chunk_bytes, &all_bytes) ||
        static_cast<size_t>(all_bytes) > cache_bytes)
        return nullptr;
    const auto n_bytes = sizeof(KeptChunks) + static_cast<size_t>(n_chunks + 7) / 8;
    const auto counted = static_cast<int64_t>(n_bytes);
    if (!take_memory(MemoryUse::lasting, counted)) return nullptr;
    auto *kept = static_cast<KeptChunks *>(calloc(1, n_bytes));
    if (!kept) {
        give_memory(MemoryUse::lasting, counted);
        return nullptr;
    }
    kept->n_bytes = counted;
    sds_io_parameters costs;
    sds_io_parameters_builtin(&costs);
    kept->copy_s_per_byte = costs.copy_s_per_byte;
    kept->element_bytes = stored.element_bytes;
    kept->rank = stored.rank;
    for (int32_t axis = 0; axis < stored.rank; axis++) {
        kept->shape[axis] = stored.chunk[axis];
        kept->n_on_axis[axis] = (stored.extent[axis] - 1) / stored.chunk[axis] + 1;
    }
    return kept;
}

void release_chunks(KeptChunks *kept)
{
    if (!kept) return;
    give_memory(MemoryUse::lasting, kept->n_bytes);
    free(kept);
}

bool is_left_to_cache(const KeptChunks &kept)
{
    return __atomic_load_n(&kept.is_left, __ATOMIC_RELAXED);
}

NativeRead count_read(KeptChunks &kept, const sds_hyperslab &slab, double predicted_s)
{
    const Turn turn(kept);
    if (!turn.has_it() || slab.rank != kept.rank || !is_inside(kept, slab)) return {0, false};
    int64_t n_new = 0;
    const auto n = static_cast<double>(mark(kept, slab, 0, 0, n_new));
    double n_elements = 1;
    for (int32_t axis = 0; axis < kept.rank; axis++)
        n_elements *= static_cast<double>(slab.count[axis] * slab.block[axis]);
    const double copied_s =
        read_s + n * held_chunk_s + runs_of(kept, slab, n_elements) * run_s +
        n_elements * static_cast<double>(kept.element_bytes) * kept.copy_s_per_byte;
    const double decoded_s = predicted_s > copied_s ? predicted_s - copied_s : 0;
    const double seconds = copied_s + decoded_s * static_cast<double>(n_new) / n;
    kept.native_s += seconds;
    return {seconds, n_new == 0};
}

void count_served(KeptChunks &kept, const NativeRead &native, double seconds)
{
    const Turn turn(kept);
    if (!turn.has_it() || native.seconds <= 0) return; // what was not counted is not compared
    kept.served_s += seconds;
    if (!native.is_copy) return;
    kept.copied_s += native.seconds;
    kept.instead_s += seconds;
    if (kept.served_s > kept.native_s * part_at_stake &&
        kept.instead_s > kept.copied_s * SDS_PLAN_MARGIN)
        __atomic_store_n(&kept.is_left, true, __ATOMIC_RELAXED);
}

} // namespace sds::vol
