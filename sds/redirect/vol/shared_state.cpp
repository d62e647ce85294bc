#include "shared_state.h"

#include <pthread.h>

#include "sds/owner_lock.h"

namespace sds::vol
{
namespace
{

// A signal handler that ends the program by exit may have interrupted its holder, and HDF5 closes
// files at exit. The handler then goes on without, as natively.
sds_owner_lock state = {0};
pthread_once_t fork_handlers = PTHREAD_ONCE_INIT;

bool is_held_for_fork = false; // of the thread that forks, under the lock
void (*in_child)() = nullptr;

void before_fork()
{
    if (sds_owner_lock_take(&state))
        is_held_for_fork = true; // else this thread holds it already: a handler forks
}

void after_fork_in_parent()
{
    if (!is_held_for_fork) return;
    is_held_for_fork = false;
    sds_owner_lock_release(&state);
}

// The child's thread is another one than its parent's, which alone could unlock it.
void renew()
{
    if (is_held_for_fork && in_child) in_child();
    sds_owner_lock_release(&state);
    is_held_for_fork = false;
}

// Held across fork, so that what it guards is whole in the child.
void register_fork_handlers()
{
    pthread_atfork(before_fork, after_fork_in_parent, renew);
}

} // namespace

void call_in_children(void (*function)())
{
    SharedStateLock lock;
    in_child = function;
}

SharedStateLock::SharedStateLock()
{
    pthread_once(&fork_handlers, register_fork_handlers);
    is_held_ = sds_owner_lock_take(&state);
}

SharedStateLock::~SharedStateLock()
{
    if (is_held_) sds_owner_lock_release(&state);
}

} // namespace sds::vol
