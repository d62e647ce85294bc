#include "fork.h"

#include <pthread.h>

#include "host.h"
#include "memory_budget.h"
#include "native_alias.h"
#include "original_file.h"
#include "shared_state.h"
#include "tracing.h"

namespace sds::vol
{
namespace
{

pthread_once_t watched = PTHREAD_ONCE_INIT;

void begin_child()
{
    renew_binding();
    renew_aliases();
    if (is_state_whole()) give_up_readers();
    forget_spare_memory();
    renew_state_lock();
    renew_trace();
}

void register_handlers()
{
    pthread_atfork(hold_state_for_fork, release_state_after_fork, begin_child);
}

} // namespace

void watch_forks()
{
    pthread_once(&watched, register_handlers);
}

} // namespace sds::vol
