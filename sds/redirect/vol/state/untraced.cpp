#include "untraced.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "append_line.h"
#include "config.h"

namespace sds::vol
{
namespace
{

// Some hundred processes.
constexpr off_t most_bytes = 64 << 10;
constexpr int most_libraries = 8;
const void *noted[most_libraries];

// A program may close HDF5 and start it again as often as it likes.
bool is_new(const Image &library)
{
    if (!library.segments) return false; // the loader does not know it
    for (const void *&place : noted) {
        const void *expected = nullptr;
        if (__atomic_compare_exchange_n(&place, &expected,
                                        static_cast<const void *>(library.segments), false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return true;
        if (expected == library.segments) return false;
    }
    return false;
}

} // namespace

void note_untraced(const Image &library, const Version &version, const char *reason)
{
    // Of an MPI job one process notes it.
    if (!config().home[0] || config().rank > 0 || !is_new(library)) return;
    const int saved_errno = errno;
    char path[PATH_MAX + 32], host[HOST_NAME_MAX + 1] = "";
    snprintf(path, sizeof path, "%s/spool/untraced.tsv", config().home);
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    const char *program = program_invocation_name ? program_invocation_name : "";
    char *line = nullptr; // not on the stack, which may be a small thread's
    const int n =
        asprintf(&line, "%lld\t%ld\t%.400s\t%.400s\t%.400s\t%u.%u.%u\t%.400s\n",
                 static_cast<long long>(time(nullptr)), static_cast<long>(getpid()), host, program,
                 library.path, version.major, version.minor, version.release, reason);
    if (n > 0) {
        // A name with a tab is left out by who reads the line.
        for (int i = 0; i < n - 1; i++)
            if (line[i] == '\n' || line[i] == '\r') line[i] = '?';
        append_line(path, line, static_cast<size_t>(n), most_bytes);
        free(line);
    }
    errno = saved_errno;
}

} // namespace sds::vol
