#include "sds/list_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file_handle.h"
#include "file_read.h"
#include "list_fault.h"
#include "mapping.h"
#include "planner.h"

/* A list is short if it has at most so many regions, which fit on the stack. */
#define SHORT_REGIONS 64
#define SHORT_BYTES 4096
/* Regions closer than this are better read with the holes between them. */
#define CLOSE_BYTES 4096
/* More regions than these may gain from a mapping. */
#define UNMAPPED_REGIONS 8
/* Regions read without asking whether the cache holds them, which costs 60 ns, behind one where it
 * was asked: cold regions are read with several requests in flight. */
#define LOOK_EVERY 8

static int64_t length_of(const sds_regions *regions, size_t i)
{
    return regions->lengths == NULL ? regions->length : regions->lengths[i];
}

/* Refuse a list that reaches past the end of the file, also where another region is read over it.
 */
static sds_status check_within_file(int fd, const sds_regions *regions, sds_list_fault *fault)
{
    struct stat found;
    if (fstat(fd, &found) != 0) return SDS_EIO;
    if (!S_ISREG(found.st_mode)) return SDS_OK; /* whose size says nothing */
    for (size_t i = 0; i < regions->n; i++) {
        const int64_t offset = regions->offsets[i], length = length_of(regions, i);
        if (length > 0 && offset + length > found.st_size)
            return sds__list_fail(fault, (sds_list_fault){
                                             .rule = SDS_LIST_OUTSIDE_FILE,
                                             .region = i,
                                             .offset = offset,
                                             .length = length,
                                             .file_bytes = found.st_size,
                                         });
    }
    return SDS_OK;
}

/* The range that regions lie in, and the sum of their lengths; 0 where they are not few bytes, or
 * no list that can be right. */
static int span_of(const sds_list *list, int64_t *begin, int64_t *end, int64_t *sum)
{
    const sds_regions *regions = &list->in_file;
    *begin = INT64_MAX;
    *end = *sum = 0;
    if (!list->is_packed || regions->n == 0 || regions->n > SHORT_REGIONS) return 0;
    for (size_t i = 0; i < regions->n; i++) {
        const int64_t offset = regions->offsets[i], length = length_of(regions, i);
        if (offset < 0 || length <= 0 || length > SHORT_BYTES || offset > INT64_MAX - length)
            return 0;
        if (offset < *begin) *begin = offset;
        if (offset + length > *end) *end = offset + length;
        *sum += length;
    }
    return *sum <= SHORT_BYTES && *sum <= list->memory_bytes;
}

/* Read a range whole, or not; one that is looked for in the cache only if it is there. */
static int read_whole(int fd, uint8_t *to, int64_t length, int64_t offset, int is_looked_for)
{
    int64_t got = length;
    const sds_status status = is_looked_for ? sds__read_cached(fd, to, length, offset, &got)
                                            : sds__read_all(fd, to, length, offset);
    return status == SDS_OK && got == length;
}

/* Read a short list without a plan: close regions with one call, others with one each.
 *
 * Everything is read into the stack first, so that memory stays as it is where a region reaches
 * outside of the file: whether it does shows without asking for the file's size. Returns whether
 * the list was read; if not, nothing is known of why. */
static int read_short(int fd, const sds_list *list, uint8_t *memory, sds_read_report *report)
{
    const sds_regions *regions = &list->in_file;
    int64_t begin, end, sum;
    if (!span_of(list, &begin, &end, &sum)) return 0;
    uint8_t bytes[SHORT_BYTES];
    const int is_close = end - begin <= SHORT_BYTES;
    if (!is_close && end - begin <= (int64_t)(regions->n - 1) * CLOSE_BYTES) return 0;
    if (is_close && !read_whole(fd, bytes, end - begin, begin, 0)) return 0;
    int64_t n_runs = 0, done = 0;
    for (size_t i = 0; i < regions->n; n_runs++) {
        const int64_t offset = regions->offsets[i];
        int64_t length = length_of(regions, i++);
        while (i < regions->n && regions->offsets[i] == offset + length)
            length += length_of(regions, i++);
        if (is_close)
            memcpy(memory + done, bytes + (offset - begin), (size_t)length);
        else if (!read_whole(fd, bytes + done, length, offset, n_runs % LOOK_EVERY == 0))
            return 0;
        done += length;
    }
    if (!is_close) memcpy(memory, bytes, (size_t)sum);
    if (report == NULL) return 1;
    report->cache = report->plan.cache = SDS_CACHE_WARM;
    report->plan.executor = is_close && n_runs > 1 ? SDS_EXECUTOR_SIEVE : SDS_EXECUTOR_PREAD;
    report->plan.runs = n_runs;
    report->requests = report->plan.requests = is_close ? 1 : n_runs;
    report->plan.bytes_useful = sum;
    report->bytes_read = report->plan.bytes_read = is_close ? end - begin : sum;
    report->plan.memory_bytes = SHORT_BYTES;
    report->plan.queue_depth = 1;
    return 1;
}

/* Whether a list may be read in any way. */
static int is_left_open(const sds_read_options *options)
{
    return options == NULL || (sds__is_default(options) && !options->only_cached);
}

static sds_status read_planned(sds_file *file, const sds_list *list, void *memory,
                               const sds_read_options *options, sds_read_report *report,
                               sds_list_fault *fault)
{
    size_t n;
    sds_piece *pieces;
    sds_status status = sds_list_pieces(list, SDS_LIST_INTO_MEMORY, &n, &pieces, fault);
    if (status != SDS_OK) return status;
    status = check_within_file(file->fd, &list->in_file, fault);
    if (status == SDS_OK) status = sds_read_pieces(file, n, pieces, options, memory, report);
    /* Also where a plan was not needed. */
    if (report != NULL && options != NULL) report->plan.strategy = options->strategy;
    const int saved_errno = errno;
    free(pieces);
    errno = saved_errno;
    return status;
}

sds_status sds_read_list(sds_file *file, const sds_list *list, void *memory,
                         const sds_read_options *options, sds_read_report *report,
                         sds_list_fault *fault)
{
    if (report != NULL) *report = (sds_read_report){0};
    if (is_left_open(options) && file->blocks == NULL &&
        (list->in_file.n <= UNMAPPED_REGIONS || !sds__can_map(file)) &&
        read_short(file->fd, list, memory, report))
        return SDS_OK;
    return read_planned(file, list, memory, options, report, fault);
}

sds_status sds_read_list_of(int fd, const sds_list *list, void *memory,
                            const sds_read_options *options, sds_read_report *report,
                            sds_list_fault *fault)
{
    if (report != NULL) *report = (sds_read_report){0};
    if (is_left_open(options) && read_short(fd, list, memory, report)) return SDS_OK;
    sds_file *file = NULL;
    sds_status status = sds_file_open(fd, NULL, &file);
    if (status == SDS_OK) status = read_planned(file, list, memory, options, report, fault);
    sds_file_close(file);
    return status;
}
