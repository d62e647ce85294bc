/* The library that `sds run` and `sds env` name in LD_PRELOAD: it answers HDF5's question for
 * HDF5_VOL_CONNECTOR.
 *
 * HDF5 asks for the variable once, while it starts. The program's own answer holds where there is
 * one. Where the variable is unset or names SDS, the connector is registered with the HDF5 that
 * asks, and named only if that worked. So HDF5 is never told of a connector that it could fail to
 * load, and looks for none: HDF5_PLUGIN_PATH is as the program left it. That an HDF5
 * starts which asks for no connector is noted in the home (preload_note.c).
 *
 * It is loaded into every program, so it needs nothing but what each C library has: no version of a
 * symbol, no other library, no memory. Copies of it outlive an installation: the names
 * SDS_CONNECTOR and sds_connector_for, and what they mean, stay (docs/decisions/0013). */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "preload.h"

#define FILE_NAME "/sds_preload.so"

/* In libdl before glibc 2.34: a program that has loaded no libdl cannot load a connector either. */
#pragma weak dlopen
#pragma weak dlsym
/* A program may do without a C library. */
#pragma weak environ
#pragma weak program_invocation_short_name
#pragma weak __errno_location

typedef char *(*get_variable)(const char *name);
typedef const char *(*connector_for)(const void *caller);

static get_variable next_getenv;

char *behind(char *text, const char *prefix)
{
    while (*prefix && *text == *prefix) {
        text++;
        prefix++;
    }
    return *prefix ? NULL : text;
}

/* Whether the text has the word at its beginning, as a whole. */
static int names(const char *text, const char *word)
{
    const char *rest = behind((char *)text, word);
    return rest && (*rest == '\0' || *rest == ' ' || *rest == '\t');
}

static int is_equal(const char *text, const char *other)
{
    const char *rest = behind((char *)text, other);
    return rest && *rest == '\0';
}

/* Before the constructor has run there is one thread. */
char *find_variable(const char *name)
{
    const get_variable next = __atomic_load_n(&next_getenv, __ATOMIC_RELAXED);
    if (next) return next(name);
    for (char **at = &environ ? environ : NULL; at && *at; at++) {
        char *value = behind(*at, name);
        if (value && *value == '=') return value + 1;
    }
    return NULL;
}

/* NULL where the library that asks runs natively. */
static const char *register_connector(const char *plugin, const void *caller)
{
    if (!dlopen || !dlsym) return NULL;
    const int saved_errno = errno;
    const char *value = NULL;
    void *library = dlopen(plugin, RTLD_LAZY | RTLD_LOCAL);
    void *found = library ? dlsym(library, "sds_connector_for") : NULL;
    if (found) value = (*(connector_for *)&found)(caller);
    errno = saved_errno;
    return value;
}

/* An HDF5 that starts asks for HDF5_DEBUG, and since 1.12 for its connector before that: how many
 * have done the latter alone. */
static int n_starting;

__attribute__((visibility("default"))) char *getenv(const char *name)
{
    char *value = find_variable(name);
    if (!behind((char *)name, "HDF5_")) return value;
    const int is_debug = is_equal(name, "HDF5_DEBUG");
    if (!is_debug && !is_equal(name, "HDF5_VOL_CONNECTOR")) return value;
    if (!is_debug) {
        __atomic_fetch_add(&n_starting, 1, __ATOMIC_RELAXED);
    } else if (__atomic_load_n(&n_starting, __ATOMIC_RELAXED) > 0) {
        __atomic_fetch_sub(&n_starting, 1, __ATOMIC_RELAXED);
        return value;
    }
    const char *plugin = find_variable("SDS_CONNECTOR");
    const char *named = is_debug ? find_variable("HDF5_VOL_CONNECTOR") : value;
    const int is_set = named && *named;
    if (!plugin || (is_set && !names(named, "sds"))) return value;
    if (is_debug) {
        note_untraced(__builtin_return_address(0));
        return value;
    }
    const char *answer = register_connector(plugin, __builtin_return_address(0));
    if (answer) return (char *)answer;
    return is_set ? NULL : value;
}

/* Programs whose children see other files, where the loader would complain that this one is not
 * there. */
static const char *const root_changers[] = {
    "apptainer",  "bwrap",       "ch-run",    "chroot",      "docker",         "enroot",
    "lxc-attach", "lxc-execute", "lxc-start", "nerdctl",     "nsenter",        "podman",
    "proot",      "runc",        "shifter",   "singularity", "systemd-nspawn",
};

static int changes_root(const char *program)
{
    for (size_t i = 0; i < sizeof root_changers / sizeof *root_changers; i++)
        if (names(program, root_changers[i])) return 1;
    return 0;
}

/* Take this library out of the list of LD_PRELOAD, in place. 0 where nothing is left. */
static int leave_list(char *list)
{
    const size_t n_name = sizeof FILE_NAME - 1;
    char *to = list;
    for (const char *from = list; *from;) {
        size_t length = 0;
        while (from[length] && from[length] != ':' && from[length] != ' ')
            length++;
        const int is_own = length >= n_name && behind((char *)from + length - n_name, FILE_NAME);
        if (length > 0 && !is_own) {
            if (to != list) *to++ = ':';
            for (size_t i = 0; i < length; i++)
                *to++ = from[i];
        }
        from += length + (from[length] != '\0');
    }
    *to = '\0';
    return to != list;
}

/* In place, before the program has looked at it. */
static void leave_environment(char **variables)
{
    char **to = variables;
    for (char **from = variables; *from; from++) {
        char *list = behind(*from, "LD_PRELOAD=");
        const char *connector = behind(*from, "HDF5_VOL_CONNECTOR=");
        if (list ? leave_list(list) : !connector || !names(connector, "sds")) *to++ = *from;
    }
    *to = NULL;
}

__attribute__((constructor)) static void start(void)
{
    if (dlsym) {
        void *next = dlsym(RTLD_NEXT, "getenv");
        __atomic_store_n(&next_getenv, *(get_variable *)&next, __ATOMIC_RELAXED);
    }
    if (&program_invocation_short_name && &environ && environ &&
        changes_root(program_invocation_short_name))
        leave_environment(environ);
}
