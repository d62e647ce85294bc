#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "sds/trace_format.h"
#include "trace_layout.h"

struct sds_trace_reader {
    int fd;
    int64_t size_bytes;   /* of the file at its open; what comes later is for the next reader */
    int64_t start_offset; /* records before it were delivered to an earlier reader */
    int64_t offset;       /* end of the last whole block */
    int64_t skipped_bytes;
    int64_t dropped_reads;
    int attempts; /* to find a block behind damage; each may be a checksum over 1 MiB */

    sds_trace_process process;
    char *process_text;
    char *dataset_text; /* of the dataset delivered last */
    uint8_t *known;     /* one bit per dataset id */

    uint8_t *payload;
    sds__block_header block;
    sds__view records; /* what is left of a block of records */
    sds__record_coder coder;
};

static sds_status read_at(int fd, void *bytes, size_t n, int64_t offset)
{
    size_t done = 0;
    while (done < n) {
        const ssize_t got =
            pread(fd, (uint8_t *)bytes + done, n - done, (off_t)(offset + (int64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return SDS_EIO;
        if (got == 0) return SDS_ESHORT;
        done += (size_t)got;
    }
    return SDS_OK;
}

/* The header of a block that could begin at offset and ends inside the file. */
static int read_header(sds_trace_reader *reader, int64_t offset, sds__block_header *header)
{
    if (reader->size_bytes - offset < SDS__BLOCK_HEADER_BYTES) return 0;
    if (read_at(reader->fd, header, sizeof *header, offset) != SDS_OK) return 0;
    return memcmp(header->magic, SDS__BLOCK_MAGIC, sizeof header->magic) == 0 &&
           header->version == SDS_TRACE_VERSION && header->length_bytes <= SDS__BLOCK_MAX_BYTES &&
           header->length_bytes <= reader->size_bytes - offset - SDS__BLOCK_HEADER_BYTES;
}

/* The whole, undamaged block at offset, into reader->block and reader->payload. */
static int read_block(sds_trace_reader *reader, int64_t offset)
{
    if (!read_header(reader, offset, &reader->block)) return 0;
    if (read_at(reader->fd, reader->payload, reader->block.length_bytes,
                offset + SDS__BLOCK_HEADER_BYTES) != SDS_OK)
        return 0;
    return sds__block_crc32c(&reader->block, reader->payload) == reader->block.crc32c;
}

/* The next whole block behind a damaged one, or -1: then all that follows is a torn tail, or a
 * block that is being written right now. */
static int64_t resynchronize(sds_trace_reader *reader)
{
    enum { WINDOW = 64 << 10, OVERLAP = sizeof reader->block.magic - 1, MAX_ATTEMPTS = 1000 };
    uint8_t *window = malloc(WINDOW);
    int64_t found = -1;
    for (int64_t at = reader->offset + 1;
         window != NULL && found < 0 && reader->attempts < MAX_ATTEMPTS; at += WINDOW - OVERLAP) {
        const int64_t left = reader->size_bytes - at;
        if (left < SDS__BLOCK_HEADER_BYTES) break;
        const size_t n = left < WINDOW ? (size_t)left : WINDOW;
        if (read_at(reader->fd, window, n, at) != SDS_OK) break;
        const uint8_t *magic = window;
        while (found < 0 && reader->attempts < MAX_ATTEMPTS &&
               (magic = memmem(magic, n - (size_t)(magic - window), SDS__BLOCK_MAGIC,
                               sizeof reader->block.magic)) != NULL) {
            const int64_t candidate = at + (magic - window);
            if (read_block(reader, candidate)) found = candidate;
            reader->attempts++;
            magic++;
        }
    }
    free(window);
    return found;
}

static void skip(sds_trace_reader *reader, int64_t offset, int64_t n)
{
    if (offset >= reader->start_offset) reader->skipped_bytes += n;
}

/* The first block says whose file it is; what it is not is told apart here. */
static sds_status read_process(sds_trace_reader *reader)
{
    sds__block_header header;
    const sds_status status = read_at(reader->fd, &header, sizeof header, 0);
    if (status == SDS_EIO) return status;
    if (status != SDS_OK || memcmp(header.magic, SDS__BLOCK_MAGIC, sizeof header.magic) != 0)
        return SDS_EFORMAT;
    if (header.version > SDS_TRACE_VERSION) return SDS_EVERSION;
    if (!read_block(reader, 0) || reader->block.type != SDS__BLOCK_PROCESS) return SDS_EFORMAT;
    sds__view view = {reader->payload, reader->block.length_bytes, 0};
    sds__take_process(&view, &reader->process, &reader->process_text);
    if (view.failed) return SDS_EFORMAT;
    reader->offset = SDS__BLOCK_HEADER_BYTES + (int64_t)reader->block.length_bytes;
    return SDS_OK;
}

static sds_status open_reader(sds_trace_reader *reader, const char *path)
{
    struct stat found;
    reader->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (reader->fd < 0 || fstat(reader->fd, &found) != 0) return SDS_EIO;
    if (!S_ISREG(found.st_mode) || found.st_size > SDS_TRACE_MAX_FILE_BYTES) return SDS_EFORMAT;
    reader->size_bytes = (int64_t)found.st_size;
    reader->payload = malloc(SDS__BLOCK_MAX_BYTES);
    reader->known = calloc(SDS_TRACE_MAX_DATASETS / 8 + 1, 1);
    if (reader->payload == NULL || reader->known == NULL) return SDS_ENOMEM;
    return read_process(reader);
}

sds_status sds_trace_reader_open(const char *path, int64_t start_offset, sds_trace_reader **out)
{
    if (start_offset < 0) return SDS_EINVAL;
    sds_trace_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) return SDS_ENOMEM;
    reader->start_offset = start_offset;
    const sds_status status = open_reader(reader, path);
    if (status != SDS_OK) {
        const int saved_errno = errno;
        sds_trace_reader_close(reader);
        errno = saved_errno;
        return status;
    }
    *out = reader;
    return SDS_OK;
}

const sds_trace_process *sds_trace_reader_process(const sds_trace_reader *reader)
{
    return &reader->process;
}

/* A record of the present block; 0 where there is none left. */
static int next_record(sds_trace_reader *reader, sds_trace_record *record)
{
    sds__view *view = &reader->records;
    if (view->left == 0) return 0;
    const int64_t left = (int64_t)view->left;
    sds__take_record(&reader->coder, view, record);
    const uint32_t id = record->first.dataset;
    const int known = !view->failed && id <= SDS_TRACE_MAX_DATASETS &&
                      (reader->known[id / 8] >> (id % 8) & 1) != 0;
    if (known) return 1;
    /* Nothing behind it in the block can be trusted, nor meant anything without its dataset. */
    skip(reader, reader->start_offset, left);
    view->left = 0;
    return 0;
}

/* Move to the next whole block; 0 at the end. */
static int next_block(sds_trace_reader *reader)
{
    sds__block_header header;
    if (reader->offset < reader->start_offset && read_header(reader, reader->offset, &header) &&
        header.type == SDS__BLOCK_RECORDS) {
        /* Delivered before: where the next block is sound, this one's header was. */
        const int64_t end = reader->offset + SDS__BLOCK_HEADER_BYTES + header.length_bytes;
        sds__block_header after;
        if (end == reader->start_offset ||
            (end < reader->start_offset && read_header(reader, end, &after))) {
            reader->block = header;
            reader->offset = end;
            return 1;
        }
    }
    if (!read_block(reader, reader->offset)) {
        const int64_t next = resynchronize(reader);
        if (next < 0) return 0;
        skip(reader, reader->offset, next - reader->offset);
        reader->offset = next;
        if (!read_block(reader, next)) return 0;
    }
    reader->offset += SDS__BLOCK_HEADER_BYTES + (int64_t)reader->block.length_bytes;
    return 1;
}

sds_trace_item sds_trace_reader_next(sds_trace_reader *reader, uint32_t *id,
                                     sds_trace_dataset *dataset, sds_trace_record *record)
{
    for (;;) {
        if (next_record(reader, record)) {
            *id = record->first.dataset;
            return SDS_TRACE_RECORD;
        }
        const int64_t offset = reader->offset;
        if (!next_block(reader)) return SDS_TRACE_END;
        sds__view view = {reader->payload, reader->block.length_bytes, 0};
        if (reader->block.type == SDS__BLOCK_RECORDS) {
            if (reader->offset <= reader->start_offset) continue;
            reader->records = view;
            sds__record_coder_init(&reader->coder);
        } else if (reader->block.type == SDS__BLOCK_DROPPED) {
            const uint64_t dropped = sds__take_varint(&view);
            if (!view.failed && dropped <= INT64_MAX) reader->dropped_reads = (int64_t)dropped;
        } else if (reader->block.type == SDS__BLOCK_DATASET) {
            free(reader->dataset_text);
            *id = sds__take_dataset(&view, dataset, &reader->dataset_text);
            if (*id != 0) {
                reader->known[*id / 8] |= (uint8_t)(1U << (*id % 8));
                return SDS_TRACE_DATASET;
            }
            skip(reader, offset, reader->offset - offset);
        }
    }
}

int sds_trace_reader_is_between_blocks(const sds_trace_reader *reader)
{
    return reader->records.left == 0;
}

int64_t sds_trace_reader_offset(const sds_trace_reader *reader)
{
    return reader->offset;
}

int64_t sds_trace_reader_torn_bytes(const sds_trace_reader *reader)
{
    return reader->size_bytes - reader->offset;
}

int64_t sds_trace_reader_skipped_bytes(const sds_trace_reader *reader)
{
    return reader->skipped_bytes;
}

int64_t sds_trace_reader_dropped_reads(const sds_trace_reader *reader)
{
    return reader->dropped_reads;
}

void sds_trace_reader_close(sds_trace_reader *reader)
{
    if (reader == NULL) return;
    if (reader->fd >= 0) close(reader->fd);
    free(reader->process_text);
    free(reader->dataset_text);
    free(reader->known);
    free(reader->payload);
    free(reader);
}
