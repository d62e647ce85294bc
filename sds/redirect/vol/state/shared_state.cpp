#include "shared_state.h"

#include <signal.h>

#include "sds/owner_lock.h"

namespace sds::vol
{
namespace
{

// A signal handler that ends the program by exit may have interrupted its holder, and HDF5 closes
// files at exit. The handler then goes on without, as natively.
sds_owner_lock state = {0};

// Forks that the lock is held for, of the thread that holds it: a signal handler, or another
// library's own preparation, may fork while a fork is being prepared.
volatile sig_atomic_t n_forks = 0;

} // namespace

void hold_state_for_fork()
{
    // Not taken, and no fork: a handler forks that has interrupted the holder. What one did between
    // the two lines of an outer fork's preparation, its own handlers have undone.
    if (sds_owner_lock_take(&state))
        n_forks = 1;
    else if (n_forks > 0)
        n_forks = n_forks + 1;
}

void release_state_after_fork()
{
    if (n_forks == 0 || sds_owner_lock_owner(&state) != sds_this_thread()) return;
    n_forks = n_forks - 1;
    if (n_forks == 0) sds_owner_lock_release(&state);
}

bool is_state_whole()
{
    return n_forks > 0;
}

// The lock is the parent's, and so are its forks: where the child was made while another fork was
// being prepared, that one goes on in the child without the lock, which has one thread.
void renew_state_lock()
{
    n_forks = 0;
    sds_owner_lock_release(&state);
}

SharedStateLock::SharedStateLock() : is_held_(sds_owner_lock_take(&state)) {}

SharedStateLock::~SharedStateLock()
{
    if (is_held_) sds_owner_lock_release(&state);
}

} // namespace sds::vol
