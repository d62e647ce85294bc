#include "decoding_team.h"

#include "threads.h"

namespace sds::vol
{
namespace
{

class Lock
{
  public:
    explicit Lock(pthread_mutex_t &mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
    ~Lock() { pthread_mutex_unlock(&mutex_); }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

  private:
    pthread_mutex_t &mutex_;
};

} // namespace

DecodingTeam::DecodingTeam(int n_threads, TeamSlot slots[], char *memory, int64_t each_bytes,
                           const Decoding &decoding)
    : decoding_(decoding), slots_(slots), n_slots_(team_slots(n_threads)), other_(memory),
      n_prepared_(0), n_helpers_(0), lock_(PTHREAD_MUTEX_INITIALIZER),
      work_(PTHREAD_COND_INITIALIZER), room_(PTHREAD_COND_INITIALIZER), is_over_(false),
      has_failed_(false)
{
    char *next = memory + each_bytes;
    for (int i = 0; i < n_slots_; i++, next += each_bytes) {
        slots_[i].chunk.stored = next;
        slots_[i].state = ChunkState::free;
    }
    for (int i = 0; i < n_threads - 1; i++, next += each_bytes) {
        helpers_[i] = {this, next, {}};
        decoding_.prepare(decoding_.context, helpers_[i].own);
    }
    n_prepared_ = n_threads - 1;
    n_helpers_ = sds__start_threads(n_threads - 1, help, helpers_, sizeof *helpers_, threads_);
}

DecodingTeam::~DecodingTeam()
{
    {
        const Lock lock(lock_);
        is_over_ = true;
        pthread_cond_broadcast(&work_);
    }
    for (int i = 0; i < n_helpers_; i++)
        pthread_join(threads_[i], nullptr);
    for (int i = 0; i < n_prepared_; i++)
        drop_state(helpers_[i].own);
    pthread_cond_destroy(&room_);
    pthread_cond_destroy(&work_);
    pthread_mutex_destroy(&lock_);
}

TeamSlot *DecodingTeam::find(ChunkState state)
{
    for (int i = 0; i < n_slots_; i++)
        if (slots_[i].state == state) return &slots_[i];
    return nullptr;
}

// With the lock held, which is let go meanwhile.
void DecodingTeam::decode_one(TeamSlot &slot, char *other, DecodingBlock &own)
{
    slot.state = ChunkState::decoding;
    pthread_mutex_unlock(&lock_);
    const bool is_decoded = decoding_.decode(decoding_.context, slot.chunk, other, own);
    pthread_mutex_lock(&lock_);
    slot.state = ChunkState::free;
    has_failed_ = has_failed_ || !is_decoded;
    pthread_cond_signal(&room_);
}

void *DecodingTeam::help(void *helper)
{
    Helper &self = *static_cast<Helper *>(helper);
    DecodingTeam &team = *self.team;
    const Lock lock(team.lock_);
    while (!team.is_over_ && !team.has_failed_) {
        TeamSlot *slot = team.find(ChunkState::fetched);
        if (slot)
            team.decode_one(*slot, self.other, self.own);
        else
            pthread_cond_wait(&team.work_, &team.lock_);
    }
    return nullptr;
}

FetchedChunk *DecodingTeam::next()
{
    const Lock lock(lock_);
    while (!has_failed_) {
        if (TeamSlot *slot = find(ChunkState::free)) {
            slot->state = ChunkState::fetching;
            return &slot->chunk;
        }
        if (TeamSlot *slot = find(ChunkState::fetched))
            decode_one(*slot, other_, decoding_.own);
        else
            pthread_cond_wait(&room_, &lock_);
    }
    return nullptr;
}

void DecodingTeam::give(FetchedChunk *chunk)
{
    const Lock lock(lock_);
    reinterpret_cast<TeamSlot *>(chunk)->state = ChunkState::fetched;
    pthread_cond_signal(&work_);
}

bool DecodingTeam::finish()
{
    const Lock lock(lock_);
    while (!has_failed_) {
        if (TeamSlot *slot = find(ChunkState::fetched))
            decode_one(*slot, other_, decoding_.own);
        else if (find(ChunkState::decoding))
            pthread_cond_wait(&room_, &lock_);
        else
            return true;
    }
    return false;
}

} // namespace sds::vol
