#include "append_line.h"

#include <errno.h>
#include <fcntl.h>
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

bool has_room(int fd, size_t n_bytes, off_t most_bytes)
{
    struct stat found;
    if (fstat(fd, &found) != 0 || (most_bytes != no_limit && found.st_size >= most_bytes))
        return false;
    // A write past it does not fail: its signal ends the program.
    rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY ||
            static_cast<rlim_t>(found.st_size) + n_bytes <= limit.rlim_cur);
}

} // namespace

void append_line(const char *path, const char *line, size_t n_bytes, off_t most_bytes)
{
    const int saved_errno = errno;
    const int fd = open(path, flags, 0600);
    if (fd >= 0) {
        if (has_room(fd, n_bytes, most_bytes)) {
            const ssize_t written = write(fd, line, n_bytes);
            static_cast<void>(written);
        }
        close(fd);
    }
    errno = saved_errno;
}

} // namespace sds::vol
