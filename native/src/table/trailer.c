#include "sds/trailer.h"

#include <string.h>
#include <sys/stat.h>

#include "file_read.h"

#define MAGIC "SDSTRAIL"

typedef struct trailer_end {
    int64_t n_entries;
    char magic[8];
} trailer_end;

/* Read bytes that lie right before a place; *at becomes where they begin. */
static sds_status read_before(int fd, void *out, int64_t n, int64_t *at)
{
    if (*at < n) return SDS_EFORMAT;
    *at -= n;
    const sds_status status = sds__read_all(fd, out, n, *at);
    return status == SDS_ESHORT ? SDS_EFORMAT : status;
}

static int lies_before(const sds_trailer_entry *entry, int64_t end)
{
    return entry->offset_bytes >= 0 && entry->size_bytes >= 0 && entry->offset_bytes <= end &&
           entry->size_bytes <= end - entry->offset_bytes;
}

sds_status sds_trailer_read(int fd, sds_trailer *out)
{
    struct stat found;
    if (fstat(fd, &found) != 0) return SDS_EIO;
    int64_t at = found.st_size;
    trailer_end end;
    sds_status status = read_before(fd, &end, (int64_t)sizeof end, &at);
    if (status != SDS_OK) return status;
    if (memcmp(end.magic, MAGIC, sizeof end.magic) != 0 || end.n_entries < 1 ||
        end.n_entries > SDS_TRAILER_MAX_ENTRIES)
        return SDS_EFORMAT;
    out->n_entries = end.n_entries;
    const int64_t n_bytes = end.n_entries * (int64_t)sizeof out->entries[0];
    status = read_before(fd, out->entries, n_bytes, &at);
    for (int64_t i = 0; status == SDS_OK && i < out->n_entries; i++)
        if (!lies_before(&out->entries[i], at)) status = SDS_EFORMAT;
    return status;
}

const sds_trailer_entry *sds_trailer_find(const sds_trailer *trailer, const char *name)
{
    for (int64_t i = 0; i < trailer->n_entries; i++)
        if (strncmp(trailer->entries[i].name, name, SDS_TRAILER_NAME_BYTES) == 0)
            return &trailer->entries[i];
    return NULL;
}
