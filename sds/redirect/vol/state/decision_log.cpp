#include "decision_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

namespace sds::vol
{

namespace
{

// A write past RLIMIT_FSIZE does not fail: its signal ends the program.
bool is_within_limit(int fd, int n_bytes)
{
    rlimit limit;
    struct stat found;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY ||
            (fstat(fd, &found) == 0 &&
             static_cast<rlim_t>(found.st_size) + static_cast<rlim_t>(n_bytes) <= limit.rlim_cur));
}

} // namespace

bool decisions_are_logged()
{
    return config().debug_file[0] != '\0';
}

void log_decision(const char *event, const char *file, const char *dataset, const char *reason)
{
    if (!decisions_are_logged()) return;
    const int saved_errno = errno;
    char *line = nullptr; // not on the stack, which may be a small thread's
    const int n = asprintf(&line, "%ld\t%s\t%s\t%s\t%s\n", static_cast<long>(getpid()), event, file,
                           dataset, reason);
    if (n > 0) {
        // Opened per line: a log is read while the program runs, and a kept descriptor could be
        // closed by a program that closes all of its own. O_APPEND keeps lines of ranks whole.
        // O_NONBLOCK: nobody waits for the reader of a FIFO.
        const int fd =
            open(config().debug_file,
                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
        if (fd >= 0) {
            // A log that cannot be written is no reason to disturb the program.
            if (is_within_limit(fd, n)) {
                const ssize_t written = write(fd, line, static_cast<size_t>(n));
                static_cast<void>(written);
            }
            close(fd);
        }
        free(line);
    }
    errno = saved_errno;
}

} // namespace sds::vol
