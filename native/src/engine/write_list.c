#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "list_fault.h"
#include "sds/list_io.h"

#define MAX_VECTORS 1024 /* IOV_MAX of Linux */
/* Neighbours shorter than this on average are packed into a buffer first: the kernel takes longer
 * to look at an entry of a vector than it takes to copy this many bytes. */
#define PACKED_PIECE_BYTES 512
/* Stays in the second-level cache. */
#define PACK_BUFFER_BYTES (256 << 10)
/* Less than what Linux writes in one call at most. */
#define MAX_VECTOR_BYTES (1 << 30)

typedef struct {
    int fd;
    const uint8_t *memory;
    struct iovec *vectors; /* allocated with the first need, as the buffer */
    uint8_t *buffer;
    sds_write_report report;
} writer;

/* Pieces that lie one behind the other in the file; one request writes them. */
typedef struct {
    const sds_piece *pieces;
    size_t n;
    int64_t bytes;
} batch;

static sds_status advance(writer *self, ssize_t written, int64_t *offset)
{
    if (written < 0) return SDS_EIO;
    if (written == 0) { /* POSIX leaves open what that means; never write forever */
        errno = ENOSPC;
        return SDS_EIO;
    }
    self->report.bytes_written += written;
    *offset += written;
    return SDS_OK;
}

static sds_status write_bytes(writer *self, const uint8_t *bytes, int64_t n, int64_t offset)
{
    const int64_t end = offset + n;
    self->report.requests++;
    while (offset < end) {
        const ssize_t written =
            pwrite(self->fd, bytes + (n - (end - offset)), (size_t)(end - offset), (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        const sds_status status = advance(self, written, &offset);
        if (status != SDS_OK) return status;
    }
    return SDS_OK;
}

static sds_status write_vectors(writer *self, const batch *of)
{
    if (self->vectors == NULL) {
        self->vectors = malloc(MAX_VECTORS * sizeof *self->vectors);
        if (self->vectors == NULL) return SDS_ENOMEM;
        self->report.memory_bytes += MAX_VECTORS * (int64_t)sizeof *self->vectors;
    }
    struct iovec *left = self->vectors;
    int n = (int)of->n;
    for (int i = 0; i < n; i++)
        left[i] = (struct iovec){(void *)(self->memory + of->pieces[i].position),
                                 (size_t)of->pieces[i].length};
    int64_t offset = of->pieces->offset;
    self->report.requests++;
    while (n > 0) {
        ssize_t written = pwritev(self->fd, left, n, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        const sds_status status = advance(self, written, &offset);
        if (status != SDS_OK) return status;
        for (; n > 0 && (size_t)written >= left->iov_len; n--, left++)
            written -= (ssize_t)left->iov_len;
        if (n > 0) {
            left->iov_base = (uint8_t *)left->iov_base + written;
            left->iov_len -= (size_t)written;
        }
    }
    return SDS_OK;
}

static sds_status write_packed(writer *self, const batch *of)
{
    if (self->buffer == NULL) {
        self->buffer = malloc(PACK_BUFFER_BYTES);
        if (self->buffer == NULL) return SDS_ENOMEM;
        self->report.memory_bytes += PACK_BUFFER_BYTES;
    }
    uint8_t *to = self->buffer;
    for (size_t i = 0; i < of->n; i++) {
        const sds_piece *piece = &of->pieces[i];
        const uint8_t *from = self->memory + piece->position;
        if (piece->length == 8) /* single numbers: a size that the compiler knows */
            memcpy(to, from, 8);
        else
            memcpy(to, from, (size_t)piece->length);
        to += piece->length;
    }
    return write_bytes(self, self->buffer, of->bytes, of->pieces->offset);
}

/* The pieces from the first on that follow each other in the file, within bounds; n > 0. */
static batch neighbours(const sds_piece *pieces, size_t n, size_t max_n, int64_t max_bytes)
{
    batch made = {pieces, 1, pieces->length};
    int64_t end = pieces->offset + pieces->length;
    for (; made.n < n && made.n < max_n && pieces[made.n].offset == end; made.n++) {
        if (pieces[made.n].length > max_bytes - made.bytes) break;
        made.bytes += pieces[made.n].length;
        end += pieces[made.n].length;
    }
    return made;
}

/* One request at a time: what is written goes into the page cache, so that no request waits for the
 * disk that another could have kept busy. io_uring takes longer (docs/decisions/0024). */
static sds_status write_pieces(writer *self, const sds_piece *pieces, size_t n)
{
    sds_status status = SDS_OK;
    while (n > 0 && status == SDS_OK) {
        batch next = neighbours(pieces, n, MAX_VECTORS, MAX_VECTOR_BYTES);
        if (next.n == 1) {
            status =
                write_bytes(self, self->memory + pieces->position, pieces->length, pieces->offset);
        } else if (next.bytes >= (int64_t)next.n * PACKED_PIECE_BYTES) {
            status = write_vectors(self, &next);
        } else {
            next = neighbours(pieces, n, n, PACK_BUFFER_BYTES);
            status = write_packed(self, &next);
        }
        pieces += next.n;
        n -= next.n;
    }
    return status;
}

sds_status sds_write_list(int fd, const sds_list *list, const void *memory,
                          sds_write_report *report, sds_list_fault *fault)
{
    size_t n;
    sds_piece *pieces;
    if (report != NULL) *report = (sds_write_report){0};
    sds_status status = sds_list_pieces(list, SDS_LIST_INTO_FILE, &n, &pieces, fault);
    if (status != SDS_OK) return status;
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && flags & O_APPEND) { /* Linux would append whatever the offset */
        free(pieces);
        return sds__list_fail(fault, (sds_list_fault){.rule = SDS_LIST_APPENDS});
    }
    writer self = {.fd = fd, .memory = memory, .report.pieces = (int64_t)n};
    status = write_pieces(&self, pieces, n);
    const int saved_errno = errno;
    free(self.vectors);
    free(self.buffer);
    free(pieces);
    if (report != NULL) *report = self.report;
    errno = saved_errno;
    return status;
}
