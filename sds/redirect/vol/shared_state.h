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

// Have this called in the child of each fork, with the lock. Not called where a signal handler
// forks that has interrupted the holder: what the lock guards is not whole then.
void call_in_children(void (*function)());

} // namespace sds::vol
