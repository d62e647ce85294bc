/* Preloaded: at an open of SWITCHED_NAME the symbolic link SWITCHED_LINK is switched by rename.
 *
 * SWITCHED_TO names where it leads then, SWITCHED_BACK where it led before. SWITCHED says for how
 * long: "around" the open alone; from "before" it on; or from "after" it on. SWITCHED_OPENS is the
 * number of opens at which that happens, in each process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#undef open
#undef open64

static void lead_to(const char *link, const char *target)
{
    char made[4096];
    snprintf(made, sizeof made, "%s.made", link);
    if (symlink(target, made) != 0 || rename(made, link) != 0) abort();
}

static int open_switched(const char *name, int flags, mode_t mode)
{
    static int (*real)(const char *, int, ...);
    static int n_opens;
    const char *link = getenv("SWITCHED_LINK"), *when = getenv("SWITCHED");
    const char *most = getenv("SWITCHED_OPENS"), *opened = getenv("SWITCHED_NAME");
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "open64");
    if (!opened || strcmp(name, opened) != 0 || (most && n_opens >= atoi(most)))
        return real(name, flags, mode);
    n_opens++;
    if (strcmp(when, "after") != 0) lead_to(link, getenv("SWITCHED_TO"));
    const int fd = real(name, flags, mode);
    if (strcmp(when, "around") == 0) lead_to(link, getenv("SWITCHED_BACK"));
    if (strcmp(when, "after") == 0) lead_to(link, getenv("SWITCHED_TO"));
    return fd;
}

int open(const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open_switched(name, flags, mode);
}

int open64(const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open_switched(name, flags, mode);
}
