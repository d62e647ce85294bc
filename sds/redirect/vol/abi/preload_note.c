/* The note that an HDF5 starts of which nothing is traced, since it asks for no connector.
 *
 * HDF5 may start anywhere: in a constructor, with the loader's lock held by a thread that waits for
 * this one. So nothing is asked of the loader: the kernel says which file has the caller in it
 * (/proc/self/maps), and by system calls a line is appended to `spool/untraced.tsv` of the home, as
 * the connector's for libraries that it cannot serve (state/untraced.cpp). Which version that file
 * holds is looked up by who reads the note (sds/redirect/launch/untraced.py). What does not work is
 * left out. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "preload.h"

#pragma weak syscall
#pragma weak __errno_location
#pragma weak program_invocation_name

/* A thread may have 16 KiB of stack. */
enum { n_line = 1536, n_field = 400, n_home = 512, n_part = 512, most_bytes = 64 << 10 };

struct text {
    char *at;
    const char *end; /* of the room */
};

/* Append a field, cut off where it is long; what would end it or its line becomes a question mark.
 */
static void add_field(struct text *to, const char *from, char last)
{
    for (int i = 0; from[i] && i < n_field && to->at + 1 < to->end; i++)
        *to->at++ = from[i] == '\t' || from[i] == '\n' || from[i] == '\r' ? '?' : from[i];
    if (to->at < to->end) *to->at++ = last;
}

static void add_number(struct text *to, long number)
{
    char digits[24];
    int n = sizeof digits - 1;
    digits[n] = '\0';
    do {
        digits[--n] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0 && n > 0);
    add_field(to, digits + n, '\t');
}

/* Join two parts of a path; 0 where there is no room. */
static int join(char *to, size_t n, const char *first, const char *second)
{
    size_t at = 0;
    for (int part = 0; part < 2; part++)
        for (const char *from = part ? second : first; *from; from++) {
            if (at + 1 >= n) return 0;
            to[at++] = *from;
        }
    to[at] = '\0';
    return 1;
}

/* As state/config.cpp finds it. */
static int find_home(char *to)
{
    const char *named = find_variable("SDS_HOME");
    if (named && *named) return join(to, n_home, named, "");
    const char *data = find_variable("XDG_DATA_HOME");
    if (data && *data) return join(to, n_home, data, "/sds");
    const char *user = find_variable("HOME");
    return user && *user && join(to, n_home, user, "/.local/share/sds");
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The file that is mapped at an address: lines "low-high perms offset device inode   path". */
static int find_mapped_file(uintptr_t address, char *path)
{
    const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    uintptr_t ends[2] = {0, 0};
    int field = 0, n_path = 0, is_found = 0;
    char part[n_part];
    for (long n; !is_found && (n = syscall(SYS_read, fd, part, sizeof part)) > 0;)
        for (long i = 0; i < n && !is_found; i++) {
            const char c = part[i];
            if (c == '\n') {
                is_found = n_path > 0 && address >= ends[0] && address < ends[1];
                path[is_found ? n_path : 0] = '\0';
                ends[0] = ends[1] = 0;
                field = n_path = 0;
            } else if (field < 2 && hex_digit(c) >= 0) {
                ends[field] = ends[field] << 4 | (uintptr_t)hex_digit(c);
            } else if (field < 2 || (c == ' ' && field < 6)) {
                field++; /* behind '-' and each space; of several spaces the path is the end */
            } else if (c == '/' || n_path > 0) {
                if (n_path + 1 < n_field) path[n_path++] = c;
            }
        }
    syscall(SYS_close, fd);
    return is_found;
}

/* Of an MPI job one process notes it. */
static int is_other_rank(void)
{
    static const char *const names[] = {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK",
                                        "MV2_COMM_WORLD_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = find_variable(names[i]);
        if (rank && *rank) return !(rank[0] == '0' && rank[1] == '\0');
    }
    return 0;
}

/* A write past RLIMIT_FSIZE does not fail: its signal ends the program. */
static int has_room(long fd, size_t n)
{
    struct rlimit limit;
    const long size = syscall(SYS_lseek, fd, 0L, SEEK_END);
    if (size < 0 || size >= most_bytes ||
        syscall(SYS_prlimit64, 0L, RLIMIT_FSIZE, NULL, &limit) != 0)
        return 0;
    return limit.rlim_cur == RLIM_INFINITY || (rlim_t)size + n <= limit.rlim_cur;
}

static int is_switched_off(const char *home)
{
    const char *value = find_variable("SDS_DISABLE");
    if (value && value[0] == '1' && value[1] == '\0') return 1;
    char path[n_home + 16];
    if (!join(path, sizeof path, home, "/disabled")) return 1;
    const long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) syscall(SYS_close, fd);
    return fd >= 0 || errno != ENOENT;
}

static void append_note(const char *home, const char *file)
{
    char path[n_home + 32], line[n_line];
    if (!join(path, sizeof path, home, "/spool/untraced.tsv")) return;
    struct utsname machine;
    struct timespec now = {0, 0};
    const int has_name = syscall(SYS_uname, &machine) == 0;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    const char *program = &program_invocation_name ? program_invocation_name : NULL;
    struct text to = {line, line + sizeof line};
    add_number(&to, now.tv_sec);
    add_number(&to, syscall(SYS_getpid));
    add_field(&to, has_name ? machine.nodename : "", '\t');
    add_field(&to, program ? program : "", '\t');
    add_field(&to, file, '\t');
    add_field(&to, "0.0.0", '\t');
    add_field(&to, "", '\n');
    const size_t n = (size_t)(to.at - line);
    /* O_APPEND keeps lines of several processes whole. O_NONBLOCK: nobody waits for a FIFO. */
    const int flags =
        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
    const long fd = syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
    if (fd < 0) return;
    if (has_room(fd, n)) syscall(SYS_write, fd, line, n);
    syscall(SYS_close, fd);
}

static void say(const char *file)
{
    char line[n_line];
    struct text to = {line, line + sizeof line};
    add_field(&to, "sds: ", ' ');
    to.at--;
    add_field(&to, file, ' ');
    add_field(&to, "runs without SDS: it asks for no connector, as HDF5 before 1.12", '\n');
    syscall(SYS_write, STDERR_FILENO, line, (size_t)(to.at - line));
}

/* A program may close HDF5 and start it again as often as it likes. */
static int is_first_start(const void *caller)
{
    static const void *noted[8];
    for (size_t i = 0; i < sizeof noted / sizeof *noted; i++) {
        const void *expected = NULL;
        if (__atomic_compare_exchange_n(&noted[i], &expected, caller, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return 1;
        if (expected == caller) return 0;
    }
    return 0;
}

void note_untraced(const void *caller)
{
    if (!syscall || !__errno_location || !is_first_start(caller)) return;
    const int saved_errno = errno;
    char home[n_home], file[n_field];
    const char *verbose = find_variable("SDS_VERBOSE");
    if (find_home(home) && !is_switched_off(home) && find_mapped_file((uintptr_t)caller, file)) {
        if (!is_other_rank()) append_note(home, file);
        if (verbose && verbose[0] == '1' && verbose[1] == '\0') say(file);
    }
    errno = saved_errno;
}
