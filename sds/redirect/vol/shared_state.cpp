#include "shared_state.h"

#include <pthread.h>

namespace sds::vol
{
namespace
{

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_once_t fork_handlers = PTHREAD_ONCE_INIT;

void lock()
{
    pthread_mutex_lock(&mutex);
}
void unlock()
{
    pthread_mutex_unlock(&mutex);
}

// Held across fork, so that the child does not inherit it from a thread that it does not have.
void register_fork_handlers()
{
    pthread_atfork(lock, unlock, unlock);
}

} // namespace

SharedStateLock::SharedStateLock()
{
    pthread_once(&fork_handlers, register_fork_handlers);
    lock();
}

SharedStateLock::~SharedStateLock()
{
    unlock();
}

} // namespace sds::vol
