#include "shared_state.h"

#include "sds/owner_lock.h"

namespace sds::vol
{
namespace
{

// A signal handler that ends the program by exit may have interrupted its holder, and HDF5 closes
// files at exit. The handler then goes on without, as natively.
sds_owner_lock state = {0};

bool is_held_for_fork = false; // of the thread that forks, under the lock

} // namespace

void hold_state_for_fork()
{
    if (sds_owner_lock_take(&state))
        is_held_for_fork = true; // else this thread holds it already: a handler forks
}

void release_state_after_fork()
{
    if (!is_held_for_fork) return;
    is_held_for_fork = false;
    sds_owner_lock_release(&state);
}

bool is_state_whole()
{
    return is_held_for_fork;
}

// The child's thread is another one than its parent's, which alone could unlock it.
void renew_state_lock()
{
    sds_owner_lock_release(&state);
    is_held_for_fork = false;
}

SharedStateLock::SharedStateLock() : is_held_(sds_owner_lock_take(&state)) {}

SharedStateLock::~SharedStateLock()
{
    if (is_held_) sds_owner_lock_release(&state);
}

} // namespace sds::vol
