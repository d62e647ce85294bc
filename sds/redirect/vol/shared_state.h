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

} // namespace sds::vol
