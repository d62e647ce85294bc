#include "control_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"

static char place[] = "sds-test-XXXXXX"; /* in the current directory */

/* A file below the place, and the directories that it is in. */
static void write_file(const char *name, const char *text)
{
    char path[256];
    const int n = snprintf(path, sizeof path, "%s/%s", place, name);
    CHECK(n > 0 && (size_t)n < sizeof path);
    for (char *at = path + strlen(place) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        (void)mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int32_t quota_of(const char *groups)
{
    char file[256], mount[256];
    (void)snprintf(file, sizeof file, "%s/groups", place);
    (void)snprintf(mount, sizeof mount, "%s/mount", place);
    write_file("groups", groups);
    return sds__processor_quota(file, mount);
}

static void test_the_least_quota_of_all_groups_around(void)
{
    write_file("mount/job/cpu.max", "400000 100000\n");
    write_file("mount/job/step/cpu.max", "max 100000\n");
    write_file("mount/job/small/cpu.max", "150000 100000\n");
    CHECK(quota_of("0::/job/step\n") == 4);
    CHECK(quota_of("0::/job/small\n") == 2);
    CHECK(quota_of("0::/other\n") == INT32_MAX);
    CHECK(quota_of("") == INT32_MAX);
    write_file("mount/cpu.max", "1000 100000\n"); /* as a container sees its own */
    CHECK(quota_of("0::/\n") == 1);
    CHECK(quota_of("0::/job/step\n") == 1);
}

static void test_groups_of_version_1(void)
{
    write_file("mount/cpu/job/cpu.cfs_quota_us", "300000\n");
    write_file("mount/cpu/job/cpu.cfs_period_us", "100000\n");
    write_file("mount/cpu/free/cpu.cfs_quota_us", "-1\n");
    write_file("mount/cpu/free/cpu.cfs_period_us", "100000\n");
    CHECK(quota_of("3:cpuset:/job\n2:cpuacct,cpu:/job\n") == 3);
    CHECK(quota_of("2:cpu,cpuacct:/free\n") == INT32_MAX);
    CHECK(quota_of("2:cpuset,cpuacct:/job\n") == INT32_MAX);
    CHECK(quota_of("nonsense\n:::\n2:cpu\n") == INT32_MAX);
}

int main(void)
{
    CHECK(mkdtemp(place) != NULL);
    test_groups_of_version_1();
    test_the_least_quota_of_all_groups_around();
    return 0;
}
