#include "transfer.h"

#include <unistd.h>

#include "candidate.h"
#include "memory_budget.h"
#include "scratch.h"
#include "sds/permute.h"
#include "sds/read_engine.h"

namespace sds::vol
{
namespace
{

// A read in the replica's axes.
struct Transfer {
    const Host &host;
    sds_file *file;
    sds_array array;
    sds_hyperslab slab;
    int64_t shape[SDS_MAX_RANK];
    int64_t memory_stride[SDS_MAX_RANK]; // bytes
    const Conversion &conversion;
    char *memory;
    char *piece;
    int32_t split_axis; // pieces take one index of every axis before it
    int64_t split;      // and at most so many of it
};

// What the engine may take for a read.
class EngineMemory
{
  public:
    explicit EngineMemory(int64_t n_bytes)
        : is_lent_(n_bytes >= long_read_bytes &&
                   take_memory(MemoryUse::spare, max_long_engine_bytes)),
          process_(is_lent_ ? getpid() : 0)
    {
    }
    ~EngineMemory()
    {
        // A handler may have forked during the read, whose child owes nothing.
        if (is_lent_ && getpid() == process_) give_memory(MemoryUse::spare, max_long_engine_bytes);
    }
    EngineMemory(const EngineMemory &) = delete;
    EngineMemory &operator=(const EngineMemory &) = delete;
    int64_t bytes() const { return is_lent_ ? max_long_engine_bytes : max_engine_bytes; }

  private:
    const bool is_lent_;
    const pid_t process_;
};

bool read_slab(const Transfer &self, const sds_hyperslab &slab, void *out)
{
    sds_runs runs;
    if (sds_runs_of(&self.array, &slab, &runs) != SDS_OK) return false;
    const EngineMemory memory(sds_runs_bytes(&runs));
    sds_read_options options = {};
    options.max_memory_bytes = memory.bytes();
    return sds_read_runs(self.file, &runs, &options, out, nullptr) == SDS_OK;
}

// Cut the slab to the indices from `index` on of one axis, at most n of them and no more than lie
// evenly. Returns how many.
int64_t cut(sds_hyperslab &slab, int32_t axis, int64_t index, int64_t n)
{
    const int64_t block = slab.block[axis];
    if (block == 1) {
        slab.start[axis] += index * slab.stride[axis];
        slab.count[axis] = n;
        return n;
    }
    // Within one block of several elements.
    const int64_t within = index % block;
    const int64_t left = block - within;
    slab.start[axis] += index / block * slab.stride[axis] + within;
    slab.count[axis] = 1;
    slab.block[axis] = n < left ? n : left;
    return slab.block[axis];
}

bool move_piece(const Transfer &self, const sds_hyperslab &slab, char *destination)
{
    const int32_t rank = self.array.rank;
    int64_t shape[SDS_MAX_RANK], piece_stride[SDS_MAX_RANK];
    sds_hyperslab_shape(&slab, shape);
    int64_t n_elements = 1;
    for (int32_t axis = rank - 1; axis >= 0; axis--) {
        piece_stride[axis] = n_elements * self.conversion.to_bytes;
        n_elements *= shape[axis];
    }
    return read_slab(self, slab, self.piece) &&
           convert(self.host, self.conversion, n_elements, self.piece, nullptr) &&
           sds_copy_strided(rank, shape, piece_stride, self.memory_stride,
                            static_cast<size_t>(self.conversion.to_bytes), self.piece,
                            destination) == SDS_OK;
}

bool move_from(const Transfer &self, int32_t axis, const sds_hyperslab &slab, char *destination)
{
    if (axis == self.array.rank) return move_piece(self, slab, destination);
    const int64_t most = axis == self.split_axis ? self.split : 1;
    for (int64_t index = 0; index < self.shape[axis];) {
        sds_hyperslab part = slab;
        const int64_t left = self.shape[axis] - index;
        const int64_t taken = cut(part, axis, index, left < most ? left : most);
        char *at = destination + index * self.memory_stride[axis];
        if (axis == self.split_axis ? !move_piece(self, part, at)
                                    : !move_from(self, axis + 1, part, at))
            return false;
        index += taken;
    }
    return true;
}

// Choose pieces that fit; returns the bytes that the greatest needs.
int64_t plan_pieces(Transfer &self)
{
    const int64_t most = most_piece_bytes();
    const int64_t element_bytes = self.conversion.from_bytes > self.conversion.to_bytes
                                      ? self.conversion.from_bytes
                                      : self.conversion.to_bytes;
    int64_t inner = element_bytes; // of one index of the axis
    for (int32_t axis = 0; axis < self.array.rank; axis++)
        inner *= self.shape[axis];
    if (inner <= most || self.array.rank == 0) {
        self.split_axis = self.array.rank;
        return inner;
    }
    self.split_axis = 0;
    inner /= self.shape[0];
    while (inner > most && self.split_axis + 1 < self.array.rank)
        inner /= self.shape[++self.split_axis];
    self.split = inner < most ? most / inner : 1;
    return inner * self.split;
}

} // namespace

bool transfer(const Host &host, sds_file *file, const sds_table_dataset &dataset,
              const sds_candidate &candidate, const sds_hyperslab &slab,
              const Conversion &conversion, const MemoryLayout &memory, void *buffer)
{
    Transfer self = {
        host, file, array_of(dataset, candidate), {}, {}, {}, conversion, nullptr, nullptr, 0, 1};
    if (sds_candidate_slab(&candidate, &slab, &self.slab) != SDS_OK) return false;
    sds_hyperslab_shape(&self.slab, self.shape);
    self.memory = static_cast<char *>(buffer) + memory.offset_bytes;
    if (conversion.from == 0 && memory.is_packed &&
        sds_candidate_keeps_order(&candidate, self.shape))
        return read_slab(self, self.slab, self.memory);

    for (int32_t axis = 0; axis < self.array.rank; axis++)
        self.memory_stride[axis] = memory.stride_bytes[candidate.order[axis]];
    Scratch piece;
    if (!piece.allocate(plan_pieces(self))) return false;
    self.piece = piece.bytes();
    return self.split_axis == self.array.rank ? move_piece(self, self.slab, self.memory)
                                              : move_from(self, 0, self.slab, self.memory);
}

} // namespace sds::vol
