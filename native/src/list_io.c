#include "sds/list_io.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "file_handle.h"
#include "list_fault.h"

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

sds_status sds_read_list(sds_file *file, const sds_list *list, void *memory,
                         const sds_read_options *options, sds_read_report *report,
                         sds_list_fault *fault)
{
    size_t n;
    sds_piece *pieces;
    if (report != NULL) *report = (sds_read_report){0};
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
