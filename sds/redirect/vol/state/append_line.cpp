#include "append_line.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sds::vol
{
namespace
{

// Opened per line: the file is read while the program runs, and a kept descriptor could be closed
// by a program that closes all of its own. O_NONBLOCK: nobody waits for the reader of a FIFO.
constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

int open_below(const char *path, off_t most_bytes)
{
    const int fd = open(path, flags, 0600);
    struct stat found;
    if (fd < 0 || most_bytes == no_limit || fstat(fd, &found) != 0 || found.st_size < most_bytes)
        return fd;
    close(fd);
    char old[PATH_MAX + 8];
    const int n = snprintf(old, sizeof old, "%s.old", path);
    if (n < 0 || static_cast<size_t>(n) >= sizeof old || rename(path, old) != 0) return -1;
    return open(path, flags, 0600);
}

// A write past RLIMIT_FSIZE does not fail: its signal ends the program.
bool is_within_limit(int fd, size_t n_bytes)
{
    rlimit limit;
    struct stat found;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY ||
            (fstat(fd, &found) == 0 &&
             static_cast<rlim_t>(found.st_size) + n_bytes <= limit.rlim_cur));
}

} // namespace

void append_line(const char *path, const char *line, size_t n_bytes, off_t most_bytes)
{
    const int saved_errno = errno;
    const int fd = open_below(path, most_bytes);
    if (fd >= 0) {
        if (is_within_limit(fd, n_bytes)) {
            const ssize_t written = write(fd, line, n_bytes);
            static_cast<void>(written);
        }
        close(fd);
    }
    errno = saved_errno;
}

} // namespace sds::vol
