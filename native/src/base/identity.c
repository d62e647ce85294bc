#include "sds/identity.h"

#include <stddef.h>
#include <sys/stat.h>

void sds_identity_of_stat(const struct stat *from, sds_identity *out)
{
    out->inode = (uint64_t)from->st_ino;
    out->size_bytes = (int64_t)from->st_size;
    out->mtime_ns = (int64_t)from->st_mtim.tv_sec * 1000000000 + from->st_mtim.tv_nsec;
    out->ctime_ns = (int64_t)from->st_ctim.tv_sec * 1000000000 + from->st_ctim.tv_nsec;
}

static void fill(const struct stat *from, sds_identity *out, uint32_t *uid, uint32_t *mode)
{
    sds_identity_of_stat(from, out);
    if (uid != NULL) *uid = (uint32_t)from->st_uid;
    if (mode != NULL) *mode = (uint32_t)from->st_mode;
}

sds_status sds_identity_of_path(const char *path, sds_identity *out, uint32_t *uid, uint32_t *mode)
{
    struct stat found;
    if (stat(path, &found) != 0) return SDS_EIO;
    fill(&found, out, uid, mode);
    return SDS_OK;
}

sds_status sds_identity_of_fd(int fd, sds_identity *out, uint32_t *uid, uint32_t *mode)
{
    struct stat found;
    if (fstat(fd, &found) != 0) return SDS_EIO;
    fill(&found, out, uid, mode);
    return SDS_OK;
}

int sds_identity_equal(const sds_identity *a, const sds_identity *b)
{
    return a->inode == b->inode && a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns;
}
