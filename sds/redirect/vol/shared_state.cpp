#include "shared_state.h"

#include <pthread.h>

namespace sds::vol
{
namespace
{

// Of the kind that notices its own thread: a signal handler that ends the program by exit may have
// interrupted its holder, and HDF5 closes files at exit. It then goes on without, as natively.
pthread_mutex_t mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
pthread_once_t fork_handlers = PTHREAD_ONCE_INIT;

bool is_held_for_fork = false; // of the thread that forks, under the lock

bool lock()
{
    return pthread_mutex_lock(&mutex) == 0;
}

void before_fork()
{
    if (lock()) is_held_for_fork = true; // else this thread holds it already: a handler forks
}

void after_fork_in_parent()
{
    if (!is_held_for_fork) return;
    is_held_for_fork = false;
    pthread_mutex_unlock(&mutex);
}

// The child's thread is another one than its parent's, which alone could unlock it.
void renew()
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    is_held_for_fork = false;
}

// Held across fork, so that what it guards is whole in the child.
void register_fork_handlers()
{
    pthread_atfork(before_fork, after_fork_in_parent, renew);
}

} // namespace

SharedStateLock::SharedStateLock()
{
    pthread_once(&fork_handlers, register_fork_handlers);
    is_held_ = lock();
}

SharedStateLock::~SharedStateLock()
{
    if (is_held_) pthread_mutex_unlock(&mutex);
}

} // namespace sds::vol
