#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "sds/write_runs.h"

int main(void)
{
    FILE *file = tmpfile();
    CHECK(file != NULL);
    const int fd = fileno(file);
    const int64_t offsets[] = {9, 0, 3};
    CHECK(sds_write_runs(fd, 2, 3, offsets, 3, "abcdefghi") == SDS_OK);
    char found[15] = {0};
    CHECK(pread(fd, found, sizeof found, 0) == 14);
    CHECK(memcmp(found, "\0\0defghi\0\0\0abc", 14) == 0);

    const int64_t negative[] = {0, -1};
    CHECK(sds_write_runs(fd, 0, 2, negative, 1, "xy") == SDS_EBOUNDS);
    const int64_t far[] = {0, INT64_MAX};
    CHECK(sds_write_runs(fd, 0, 2, far, 1, "xy") == SDS_EOVERFLOW);
    CHECK(sds_write_runs(fd, -1, 1, offsets, 1, "x") == SDS_EBOUNDS);
    CHECK(pread(fd, found, 1, 0) == 1 && found[0] == 0);

    CHECK(sds_write_runs(-1, 0, 1, offsets, 1, "x") == SDS_EIO && errno == EBADF);
    CHECK(sds_write_runs(fd, 0, 0, offsets, 1, "") == SDS_OK);
    fclose(file);
    return 0;
}
