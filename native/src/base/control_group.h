/* The control groups (v1 or v2) that this process is in. Internal. */
#ifndef SDS_CONTROL_GROUP_H
#define SDS_CONTROL_GROUP_H

#include <stddef.h>
#include <stdint.h>

/* What a small file of /proc or /sys says; its length, 0: nothing. */
size_t sds__read_text(const char *path, char *text, size_t room);

/* Look at each group that the process is in for a controller ("memory"), and at those around it.
 * groups: the file that names them, /proc/self/cgroup; mount: where they are, /sys/fs/cgroup.
 * path: the group's directory, in a place of SDS_GROUP_PATH, to which names may be added: there are
 * threads with small stacks. */
#define SDS_GROUP_PATH 1088
#define SDS_GROUP_FILE 64 /* of them, for the name of a file */
typedef void (*sds__look_at_group)(char *path, int is_v2, void *context);
void sds__each_group(const char *groups, const char *mount, const char *controller,
                     sds__look_at_group look, void *context);

/* The number in a file of a group's. False where there is none: "max" is no number. */
int sds__number_of_group(char *path, const char *file, int64_t *number);

/* Processors whose time the groups of a process grant it, at least 1; INT32_MAX: no quota.
 * groups, mount: as above. */
int32_t sds__processor_quota(const char *groups, const char *mount);

#define SDS_GROUPS_FILE "/proc/self/cgroup"
#define SDS_GROUPS_MOUNT "/sys/fs/cgroup"

#endif
