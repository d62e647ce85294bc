#include "spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sds/trace_format.h"

void sds__spool_file_init(sds__spool_file *file, const char *directory, const char *host,
                          int64_t pid, int64_t start_ns, int64_t max_bytes)
{
    *file = (sds__spool_file){.max_bytes = max_bytes};
    if (asprintf(&file->path, "%s/%s-%lld-%lld%s", directory, host, (long long)pid,
                 (long long)start_ns, SDS_TRACE_SUFFIX) < 0)
        file->path = NULL;
    if (file->path == NULL) {
        file->gone = 1;
        return;
    }
    /* A host's name must not lead out of the spool. */
    for (char *c = file->path + strlen(directory) + 1; *c != '\0'; c++)
        if (*c == '/') *c = '_';
}

/* A disk may have room again later, or the process a free descriptor; a directory that is missing
 * or refused stays so. */
static int may_pass(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EINTR || error == EMFILE ||
           error == ENFILE || error == ENOMEM;
}

static int write_all(int fd, const sds__buffer *buffer)
{
    size_t done = 0;
    while (done < buffer->n) {
        const ssize_t written = write(fd, buffer->bytes + done, buffer->n - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return 0;
        done += (size_t)written;
    }
    return 1;
}

/* A write past RLIMIT_FSIZE does not fail: its signal ends the program. */
static int is_within_limit(int64_t size_bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY || (rlim_t)size_bytes <= limit.rlim_cur);
}

/* Away from standard input, output and error: where the program has closed those, other threads
 * may still write to them. */
static int above_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int saved_errno = errno;
    close(fd);
    errno = saved_errno;
    return moved;
}

static int open_new(sds__spool_file *file)
{
    const int fd = above_standard(
        open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
    struct stat made;
    if (fd < 0) {
        file->gone = !may_pass(errno);
        return -1;
    }
    if (fstat(fd, &made) != 0) {
        file->gone = 1;
        close(fd);
        return -1;
    }
    file->device = made.st_dev;
    file->inode = made.st_ino;
    return fd;
}

/* The file as the last block left it; one that has been removed, replaced or changed is left alone
 * for good. */
static int open_again(sds__spool_file *file)
{
    const int flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    const int fd = above_standard(open(file->path, flags));
    struct stat found;
    if (fd < 0) {
        file->gone = !may_pass(errno);
        return -1;
    }
    if (fstat(fd, &found) == 0 && found.st_dev == file->device && found.st_ino == file->inode &&
        found.st_size == file->size_bytes)
        return fd;
    file->gone = 1;
    close(fd);
    return -1;
}

/* Take back what a failed write left behind; where that fails too, leave the file alone for good:
 * its reader recognises the torn tail. */
static void take_back(sds__spool_file *file, int fd)
{
    if (file->size_bytes == 0) {
        if (unlink(file->path) != 0) file->gone = 1;
        return;
    }
    int failed;
    do {
        failed = ftruncate(fd, file->size_bytes);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) file->gone = 1;
}

int sds__spool_file_append(sds__spool_file *file, const sds__buffer *head,
                           const sds__buffer *blocks, int64_t reserve_bytes)
{
    const int is_new = file->size_bytes == 0;
    const int64_t n = (int64_t)blocks->n + (is_new ? (int64_t)head->n : 0);
    if (file->gone || head->failed || blocks->failed) return 0;
    if (file->size_bytes + n > file->max_bytes - reserve_bytes) return 0;
    if (!is_within_limit(file->size_bytes + n)) return 0;
    const int fd = is_new ? open_new(file) : open_again(file);
    if (fd < 0) return 0;
    const int written = (!is_new || write_all(fd, head)) && write_all(fd, blocks);
    if (written)
        file->size_bytes += n;
    else
        take_back(file, fd);
    close(fd);
    return written;
}

void sds__spool_file_free(sds__spool_file *file)
{
    free(file->path);
    *file = (sds__spool_file){.gone = 1};
}
