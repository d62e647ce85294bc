#include "decision_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "append_line.h"
#include "config.h"

namespace sds::vol
{

bool decisions_are_logged()
{
    return config().debug_file[0] != '\0';
}

void log_decision(const char *event, const char *file, const char *dataset, const char *reason)
{
    if (!decisions_are_logged()) return;
    const int saved_errno = errno;
    char *line = nullptr; // not on the stack, which may be a small thread's
    const int n = asprintf(&line, "%ld\t%s\t%s\t%s\t%s\n", static_cast<long>(getpid()), event, file,
                           dataset, reason);
    if (n > 0) {
        append_line(config().debug_file, line, static_cast<size_t>(n), no_limit);
        free(line);
    }
    errno = saved_errno;
}

} // namespace sds::vol
