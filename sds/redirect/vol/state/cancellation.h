// Keeps a thread of the program from being cancelled, which would leave what it does undone.
#pragma once

#include <pthread.h>

namespace sds::vol
{

class CancellationKeeper
{
  public:
    CancellationKeeper() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_); }
    ~CancellationKeeper() { pthread_setcancelstate(state_, nullptr); }
    CancellationKeeper(const CancellationKeeper &) = delete;
    CancellationKeeper &operator=(const CancellationKeeper &) = delete;

  private:
    int state_ = 0;
};

} // namespace sds::vol
