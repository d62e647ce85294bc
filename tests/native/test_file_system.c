#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "sds/file_system.h"

/* However a file is asked about, and however often, the answer is of its file system. */
static void test_path_and_descriptor_agree(void)
{
    char path[] = "/tmp/sds-file-system-XXXXXX";
    const int fd = mkstemp(path);
    struct stat found;
    sds_file_system system;
    CHECK(fd >= 0 && fstat(fd, &found) == 0);
    CHECK(sds_file_system_of_fd(fd, &system) == SDS_OK);
    CHECK(system.instance < UINT64_C(1) << 63);
    CHECK((system.kind == SDS_FILE_SYSTEM_SERVER || system.kind == SDS_FILE_SYSTEM_CLUSTER) ==
          (system.instance == SDS_INSTANCE_SHARED));
    for (int i = 0; i < 3; i++) {
        uint64_t device = 0, instance = 0;
        CHECK(sds_instance_of_path(path, &device, &instance) == SDS_OK);
        CHECK(device == (uint64_t)found.st_dev && instance == system.instance);
    }
    CHECK(close(fd) == 0 && unlink(path) == 0);
    CHECK(sds_file_system_of_fd(fd, &system) == SDS_EIO && errno == EBADF);
}

static void test_what_is_not_there(void)
{
    uint64_t device, instance;
    CHECK(sds_instance_of_path("/nonexistent", &device, &instance) == SDS_EIO && errno == ENOENT);
}

/* What nobody wrote rules for: its times are worth nothing. */
static void test_an_unknown_kind(void)
{
    uint64_t device, instance;
    CHECK(sds_instance_of_path("/proc/self/stat", &device, &instance) == SDS_OK);
    CHECK(instance == SDS_INSTANCE_UNKNOWN);
}

int main(void)
{
    test_path_and_descriptor_agree();
    test_what_is_not_there();
    test_an_unknown_kind();
    return 0;
}
