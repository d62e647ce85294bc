// The one lock around what threads share: open files, replicas, counters.
#pragma once

namespace sds::vol
{

// Held briefly, and never across a call into HDF5. Safe across fork: a child finds it free.
class SharedStateLock
{
  public:
    SharedStateLock();
    ~SharedStateLock();
    SharedStateLock(const SharedStateLock &) = delete;
    SharedStateLock &operator=(const SharedStateLock &) = delete;

  private:
    bool is_held_; // false in a signal handler that has interrupted the holder
};

// Around a fork (fork.h), so that what the lock guards is whole in the child, but where a signal
// handler forks that has interrupted the holder.
void hold_state_for_fork();
void release_state_after_fork();
// In the child.
bool is_state_whole();
void renew_state_lock();

} // namespace sds::vol
