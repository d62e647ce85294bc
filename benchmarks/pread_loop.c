/* What short lists of sds.read_list are measured against: one pread a region, into packed memory.
 */
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

int pread_regions(int fd, int64_t n, const int64_t offsets[], const int64_t lengths[], char *to)
{
    for (int64_t i = 0; i < n; i++) {
        if (pread(fd, to, (size_t)lengths[i], offsets[i]) != lengths[i]) return -1;
        to += lengths[i];
    }
    return 0;
}

/* The same of a file that is opened for it. */
int pread_regions_of(const char *path, int64_t n, const int64_t offsets[], const int64_t lengths[],
                     char *to)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    const int result = pread_regions(fd, n, offsets, lengths, to);
    return close(fd) == 0 ? result : -1;
}
