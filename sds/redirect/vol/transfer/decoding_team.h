// Threads that decode the chunks of one read while its own thread fetches them, and end with it.
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "chunk_filters.h"
#include "decoding_room.h"
#include "sds/geometry.h"

namespace sds::vol
{

constexpr int max_team = 8; // threads, that of the read among them

// A chunk as it is stored.
struct FetchedChunk {
    int64_t index[SDS_MAX_RANK]; // in chunks
    size_t n_bytes;
    uint32_t mask; // of filters that were not applied
    char *stored;
};

// Decodes a chunk and puts it in place. other: as large as a chunk's memory. False where its bytes
// are not what the filters write.
using DecodeChunk = bool (*)(const void *context, const FetchedChunk &chunk, char *other,
                             DecodingBlock &own);

// How many chunks there is memory for in a team's: those that are fetched, and one for each thread.
constexpr int team_slots(int n_threads)
{
    return n_threads > 1 ? n_threads + 2 : 1; // one is fetched, and one waits
}
constexpr int team_chunks(int n_threads)
{
    return team_slots(n_threads) + n_threads;
}

// So many threads at most as there is memory for, of most_team_bytes.
constexpr int64_t most_team_bytes = 64 << 20;
constexpr int team_within(int n_threads, int64_t chunk_bytes)
{
    while (n_threads > 1 &&
           team_chunks(n_threads) * most_stored_bytes(chunk_bytes) > most_team_bytes)
        n_threads--;
    return n_threads;
}

constexpr int most_team_slots = team_slots(max_team);

enum class ChunkState { free, fetching, fetched, decoding };
struct TeamSlot {
    FetchedChunk chunk;
    ChunkState state;
};

// How a team decodes; own: of the thread that reads; prepare: makes what a thread decodes with, in
// the thread that reads. What a thread takes from malloc, glibc keeps in memory apart.
struct Decoding {
    DecodeChunk decode;
    const void *context;
    DecodingBlock &own;
    void (*prepare)(const void *context, DecodingBlock &own);
};

class DecodingTeam
{
  public:
    // slots: team_slots(n_threads); memory: team_chunks(n_threads) times each_bytes.
    DecodingTeam(int n_threads, TeamSlot slots[], char *memory, int64_t each_bytes,
                 const Decoding &decoding);
    ~DecodingTeam();
    DecodingTeam(const DecodingTeam &) = delete;
    DecodingTeam &operator=(const DecodingTeam &) = delete;

    // Where the next chunk is to be fetched to. Decodes others until there is room; nullptr where
    // one could not be decoded.
    FetchedChunk *next();
    // It is fetched.
    void give(FetchedChunk *chunk);
    // Decode what is left. False where something could not be.
    bool finish();

  private:
    struct Helper {
        DecodingTeam *team;
        char *other;
        DecodingBlock own;
    };

    static void *help(void *helper);
    TeamSlot *find(ChunkState state);
    void decode_one(TeamSlot &slot, char *other, DecodingBlock &own);

    const Decoding decoding_;
    TeamSlot *const slots_;
    const int n_slots_;
    char *const other_; // of the thread that reads
    int n_prepared_;
    int n_helpers_;
    Helper helpers_[max_team - 1];
    pthread_t threads_[max_team - 1];
    pthread_mutex_t lock_; // of the states, and what follows
    pthread_cond_t work_;  // a chunk is fetched, or there is nothing more to do
    pthread_cond_t room_;  // a chunk is decoded
    bool is_over_;
    bool has_failed_;
};

} // namespace sds::vol
