#include "transfer.h"

#include <unistd.h>

#include "memory_budget.h"
#include "scratch.h"
#include "sds/candidate.h"
#include "sds/permute.h"
#include "sds/read_engine.h"
#include "sds/tiles.h"

namespace sds::vol
{
namespace
{

// A read in the replica's axes.
struct Transfer {
    const Host &host;
    sds_file *file;
    bool only_cached;
    sds_array array;
    sds_hyperslab slab;
    int64_t shape[SDS_MAX_RANK];
    int64_t memory_stride[SDS_MAX_RANK]; // bytes
    const Conversion &conversion;
    char *memory;
    char *piece;
    int32_t split_axis; // pieces take one index of every axis before it
    int64_t split;      // and the most of it
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
    options.only_cached = self.only_cached;
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

int64_t element_bytes_of(const Conversion &conversion)
{
    return conversion.from_bytes > conversion.to_bytes ? conversion.from_bytes
                                                       : conversion.to_bytes;
}

// Choose pieces of bounded size, or of one element; returns the bytes that the greatest
// needs.
int64_t plan_pieces(Transfer &self, int64_t most)
{
    int64_t inner = element_bytes_of(self.conversion); // of one index of the axis
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

bool move_planned(const Transfer &self)
{
    return self.split_axis == self.array.rank ? move_piece(self, self.slab, self.memory)
                                              : move_from(self, 0, self.slab, self.memory);
}

// Whether the elements lie one after the other where they go, in the order of the replica.
bool is_packed_as_stored(const Transfer &self)
{
    int64_t expected = self.conversion.to_bytes;
    for (int32_t axis = self.array.rank - 1; axis >= 0; axis--) {
        if (self.shape[axis] == 1) continue;
        if (self.memory_stride[axis] != expected) return false;
        expected *= self.shape[axis];
    }
    return true;
}

// Room for the pieces of a read from tiles, made where one of them needs it.
struct TileRoom {
    int64_t most; // bytes
    Scratch memory;
};

// Read the piece that is described. False on any error.
bool move_tile(Transfer &self, TileRoom &room)
{
    if (self.conversion.from == 0 && is_packed_as_stored(self))
        return read_slab(self, self.slab, self.memory);
    if (!self.piece) {
        if (!room.memory.allocate(room.most)) return false;
        self.piece = room.memory.bytes();
    }
    plan_pieces(self, room.most);
    return move_planned(self);
}

// What is read of one tile after the other. Apart: it takes more of the stack than other reads.
__attribute__((noinline)) bool transfer_tiles(Transfer &self, uint8_t announced[],
                                              const sds_table_dataset &dataset,
                                              const sds_candidate &candidate,
                                              const sds_hyperslab &slab, const MemoryLayout &memory)
{
    char *begin = self.memory;
    const int64_t element_bytes = element_bytes_of(self.conversion);
    TileRoom room;
    room.most = element_bytes;
    for (int32_t axis = 0; axis < slab.rank; axis++) {
        const int64_t n = slab.count[axis] * slab.block[axis];
        room.most *= n < candidate.tiles.shape[axis] ? n : candidate.tiles.shape[axis];
        self.memory_stride[axis] = memory.stride_bytes[candidate.order[axis]];
    }
    const int64_t most = most_piece_bytes();
    if (room.most > most) room.most = most > element_bytes ? most : element_bytes;

    sds_announce_pieces(self.file, &candidate, &dataset, &slab);
    sds_tile_walk walk;
    sds_tile_piece piece;
    sds_tile_walk_init(&walk, &candidate, &slab);
    while (sds_tile_walk_next(&walk, &piece)) {
        if (piece.place < 0) return false;
        sds_tile_array(&candidate, &dataset, piece.place, &self.array);
        self.slab = piece.slab;
        sds_hyperslab_shape(&self.slab, self.shape);
        self.memory = begin;
        for (int32_t axis = 0; axis < slab.rank; axis++)
            self.memory += piece.at[axis] * memory.stride_bytes[axis];
        const int is_due = sds_segment_is_due(self.file, &candidate, &dataset, &piece, announced);
        if (!move_tile(self, room)) return false;
        if (is_due) sds_announce_segment(self.file, &candidate, &dataset, &piece, announced);
    }
    return true;
}

} // namespace

bool transfer(const Host &host, sds_file *file, bool only_cached, uint8_t announced[],
              const sds_table_dataset &dataset, const sds_candidate &candidate,
              const sds_hyperslab &slab, const Conversion &conversion, const MemoryLayout &memory,
              void *buffer)
{
    Transfer self = {host, file, only_cached, {}, {}, {}, {}, conversion, nullptr, nullptr, 0, 1};
    self.memory = static_cast<char *>(buffer) + memory.offset_bytes;
    if (candidate.tiles.n > 0)
        return transfer_tiles(self, announced, dataset, candidate, slab, memory);
    sds_candidate_array(&candidate, &dataset, &self.array);
    if (sds_candidate_slab(&candidate, &slab, &self.slab) != SDS_OK) return false;
    sds_hyperslab_shape(&self.slab, self.shape);
    if (conversion.from == 0 && memory.is_packed &&
        sds_candidate_keeps_order(&candidate, self.shape))
        return read_slab(self, self.slab, self.memory);

    for (int32_t axis = 0; axis < self.array.rank; axis++)
        self.memory_stride[axis] = memory.stride_bytes[candidate.order[axis]];
    Scratch piece;
    if (!piece.allocate(plan_pieces(self, most_piece_bytes()))) return false;
    self.piece = piece.bytes();
    return move_planned(self);
}

} // namespace sds::vol
