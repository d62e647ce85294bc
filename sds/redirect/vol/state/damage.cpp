#include "damage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "config.h"
#include "shared_state.h"

namespace sds::vol
{
namespace
{

// The oldest is forgotten, and found damaged once more.
constexpr int max_damaged = 64;
sds_identity damaged[max_damaged];
int n_damaged = 0;

} // namespace

void report_damage(int64_t replica_id)
{
    char path[PATH_MAX + 64];
    if (!config().home[0]) return;
    snprintf(path, sizeof path, "%s/spool/%" PRId64 ".damaged", config().home, replica_id);
    const int saved_errno = errno;
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) close(fd);
    errno = saved_errno;
}

void note_damage(int64_t replica_id, const sds_identity &identity)
{
    {
        SharedStateLock lock;
        damaged[n_damaged % max_damaged] = identity;
        n_damaged = n_damaged + 1 < 2 * max_damaged ? n_damaged + 1 : max_damaged;
    }
    report_damage(replica_id);
}

bool is_known_damaged(const sds_identity &identity)
{
    if (__atomic_load_n(&n_damaged, __ATOMIC_RELAXED) == 0) return false;
    SharedStateLock lock;
    const int n = n_damaged < max_damaged ? n_damaged : max_damaged;
    for (int i = 0; i < n; i++)
        if (sds_identity_equal(&damaged[i], &identity)) return true;
    return false;
}

} // namespace sds::vol
