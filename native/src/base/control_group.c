#include "control_group.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t sds__read_text(const char *path, char *text, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t got = read(fd, text, room - 1);
    close(fd);
    if (got <= 0) return 0;
    text[got] = 0;
    return (size_t)got;
}

typedef struct {
    const char *mount;
    const char *controller;
    sds__look_at_group look;
    void *context;
} search;

/* At a group, then at those around it. A container sees its group as the root: what holds for it is
 * then said at the mount. */
static void look_outwards(const search *self, char *group, int is_v2)
{
    for (;;) {
        char path[SDS_GROUP_PATH];
        const int n =
            is_v2 ? snprintf(path, sizeof path, "%s%s", self->mount, group)
                  : snprintf(path, sizeof path, "%s/%s%s", self->mount, self->controller, group);
        if (n > 0 && n < SDS_GROUP_PATH - SDS_GROUP_FILE) self->look(path, is_v2, self->context);
        char *last = strrchr(group, '/');
        if (last == NULL) return;
        *last = 0;
    }
}

/* Whether a list of names with commas between them has this one. */
static int lists(const char *names, const char *name)
{
    const size_t n = strlen(name);
    for (; *names != 0; names += strcspn(names, ","), names += *names == ',')
        if (strncmp(names, name, n) == 0 && (names[n] == 0 || names[n] == ',')) return 1;
    return 0;
}

/* Of a line hierarchy:controllers:group; 0::group is that of version 2. */
static void look_by(const search *self, char *line)
{
    const int is_v2 = strncmp(line, "0::", 3) == 0;
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) return;
    *group++ = 0;
    if (is_v2 || lists(controllers + 1, self->controller)) look_outwards(self, group, is_v2);
}

void sds__each_group(const char *groups, const char *mount, const char *controller,
                     sds__look_at_group look, void *context)
{
    const search self = {mount, controller, look, context};
    char text[2048]; /* longer lines, and all behind one, say nothing */
    size_t n = 0;
    const int fd = open(groups, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    for (ssize_t got; (got = read(fd, text + n, sizeof text - 1 - n)) > 0;) {
        text[n + (size_t)got] = 0;
        char *line = text;
        for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = 0;
            look_by(&self, line);
        }
        n = strlen(line);
        memmove(text, line, n);
    }
    close(fd);
}

/* The text in a file of a group, as sds__read_text. */
static size_t read_of_group(char *path, const char *file, char *text, size_t room)
{
    char *end = path + strlen(path);
    (void)snprintf(end, SDS_GROUP_FILE, "/%s", file);
    const size_t n = sds__read_text(path, text, room);
    *end = 0;
    return n;
}

int sds__number_of_group(char *path, const char *file, int64_t *number)
{
    char text[64], *end;
    if (read_of_group(path, file, text, sizeof text) == 0) return 0;
    *number = strtoll(text, &end, 10);
    return end != text;
}

static void least_quota(char *path, int is_v2, void *context)
{
    int32_t *least = context;
    long long us = -1, period_us = -1; /* of processor time, in so many */
    char text[64];
    if (is_v2) {
        if (read_of_group(path, "cpu.max", text, sizeof text) == 0 ||
            sscanf(text, "%lld %lld", &us, &period_us) != 2)
            return;
    } else {
        int64_t quota, period;
        if (!sds__number_of_group(path, "cpu.cfs_quota_us", &quota) ||
            !sds__number_of_group(path, "cpu.cfs_period_us", &period))
            return;
        us = quota;
        period_us = period;
    }
    if (us <= 0 || period_us <= 0) return;
    const long long n = us / period_us + (us % period_us != 0);
    if (n < *least) *least = (int32_t)n;
}

int32_t sds__processor_quota(const char *groups, const char *mount)
{
    int32_t least = INT32_MAX;
    sds__each_group(groups, mount, "cpu", least_quota, &least);
    return least;
}
