#include "spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "sds/trace_format.h"

void sds__spool_file_init(sds__spool_file *file, const char *directory, const char *host,
                          int64_t pid, int64_t start_ns, int64_t max_bytes)
{
    *file = (sds__spool_file){.fd = -1, .max_bytes = max_bytes};
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

/* A disk may have room again later; a directory that is missing or refused stays so. */
static int may_pass(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EINTR;
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

/* Take back what a failed write left behind; where that fails too, leave the file alone for good:
 * its reader recognises the torn tail. */
static void take_back(sds__spool_file *file)
{
    if (file->size_bytes == 0) {
        close(file->fd);
        file->fd = -1;
        if (unlink(file->path) != 0) file->gone = 1;
        return;
    }
    int failed;
    do {
        failed = ftruncate(file->fd, file->size_bytes);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) {
        close(file->fd);
        file->fd = -1;
        file->gone = 1;
    }
}

int sds__spool_file_append(sds__spool_file *file, const sds__buffer *head,
                           const sds__buffer *blocks, int64_t reserve_bytes)
{
    const int is_new = file->fd < 0;
    const int64_t n = (int64_t)blocks->n + (is_new ? (int64_t)head->n : 0);
    if (file->gone || head->failed || blocks->failed) return 0;
    if (file->size_bytes + n > file->max_bytes - reserve_bytes) return 0;
    if (is_new) {
        file->fd =
            open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (file->fd < 0) {
            file->gone = !may_pass(errno);
            return 0;
        }
    }
    if ((is_new && !write_all(file->fd, head)) || !write_all(file->fd, blocks)) {
        take_back(file);
        return 0;
    }
    file->size_bytes += n;
    return 1;
}

void sds__spool_file_close(sds__spool_file *file)
{
    if (file->fd >= 0) close(file->fd);
    free(file->path);
    *file = (sds__spool_file){.fd = -1, .gone = 1};
}
