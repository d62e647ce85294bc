#include "host.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "decision_log.h"
#include "error_stack.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

Host hosts[max_hosts];
int n_hosts = 0;
pthread_mutex_t binding = PTHREAD_MUTEX_INITIALIZER;
pthread_once_t fork_handler = PTHREAD_ONCE_INIT;

// Another thread of the parent may be binding a library, and is not in the child. A host counts
// only once it is whole.
void renew_in_child()
{
    pthread_mutex_init(&binding, nullptr);
}

void register_fork_handler()
{
    pthread_atfork(nullptr, nullptr, renew_in_child);
}

// Libraries that embed HDF5 may rename its symbols. VTK's wheel is the one known.
constexpr const char *prefixes[] = {"", "vtkhdf5_"};

void *symbol(void *library, const char *prefix, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return dlsym(library, full);
}

// The name of the first required function that the library lacks; nullptr where none is missing.
const char *bind_functions(Host &host, void *library, const char *prefix)
{
    const char *missing = nullptr;
#define OPTIONAL(result, name, arguments)                                                          \
    host.hdf5.name = reinterpret_cast<result(*) arguments>(symbol(library, prefix, #name));
#define REQUIRED(result, name, arguments)                                                          \
    OPTIONAL(result, name, arguments)                                                              \
    if (!host.hdf5.name && !missing) missing = #name;
#include "hdf5_functions.inc"
#undef REQUIRED
#undef OPTIONAL
    host.default_dxpl =
        static_cast<const hid_t *>(symbol(library, prefix, "H5P_LST_DATASET_XFER_ID_g"));
    host.sec2_driver = static_cast<const hid_t *>(symbol(library, prefix, "H5FD_SEC2_id_g"));
    host.sec2_driver_init =
        reinterpret_cast<hid_t (*)(void)>(symbol(library, prefix, "H5FD_sec2_init"));
    if (!missing && !host.default_dxpl) missing = "H5P_LST_DATASET_XFER_ID_g";
    return missing;
}

void read_version(Host &host)
{
    // Public functions clear the error stack, and a plugin is also loaded after a failed open.
    ErrorStackKeeper keep(host);
    unsigned major = 0, minor = 0, release = 0;
    host.hdf5.H5get_libversion(&major, &minor, &release);
    snprintf(host.version, sizeof host.version, "%u.%u.%u", major, minor, release);
}

bool bind_host(Host &host, const Dl_info &where, const link_map *map)
{
    host.base = where.dli_fbase;
    snprintf(host.library, sizeof host.library, "%s", where.dli_fname);
    // A program with HDF5 linked in has an empty name in the link map.
    const bool is_program = !map || !map->l_name || !*map->l_name;
    void *library = dlopen(is_program ? nullptr : map->l_name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) {
        log_decision("unbound", host.library, "", "its symbols cannot be looked up");
        return false;
    }
    const char *missing = nullptr;
    for (const char *prefix : prefixes) {
        missing = bind_functions(host, library, prefix);
        if (!missing) break;
    }
    // The handle stays open: the library is in use for as long as it can call the connector.
    if (missing) {
        log_decision("unbound", host.library, "", missing);
        return false;
    }
    read_version(host);
    host.native = -1;
    fill_class(host);
    log_decision("bound", host.library, "", host.version);
    return true;
}

} // namespace

Host &host_at(int slot)
{
    return hosts[slot];
}

Host *host_of_caller(const void *return_address)
{
    Dl_info where;
    link_map *map = nullptr;
    if (!dladdr1(return_address, &where, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP))
        return nullptr;
    pthread_once(&fork_handler, register_fork_handler);
    pthread_mutex_lock(&binding);
    Host *found = nullptr;
    for (int i = 0; i < n_hosts && !found; i++)
        if (hosts[i].base == where.dli_fbase) found = &hosts[i];
    if (!found && n_hosts < max_hosts) {
        Host &candidate = hosts[n_hosts];
        memset(static_cast<void *>(&candidate), 0, sizeof candidate);
        candidate.slot = n_hosts;
        if (bind_host(candidate, where, map)) {
            n_hosts++;
            found = &candidate;
        }
    }
    pthread_mutex_unlock(&binding);
    return found;
}

} // namespace sds::vol
