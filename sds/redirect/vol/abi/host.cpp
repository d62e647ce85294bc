#include "host.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "decision_log.h"
#include "elf_image.h"
#include "error_stack.h"
#include "fork.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

int n_hosts = 0;
pthread_mutex_t binding = PTHREAD_MUTEX_INITIALIZER;

constexpr const char *not_mapped = "the loader does not know where it is";

// Libraries that embed HDF5 may rename its symbols. VTK's wheel is the one known.
constexpr const char *prefixes[] = {"", "vtkhdf5_"};
constexpr size_t n_prefixes = sizeof prefixes / sizeof *prefixes;

constexpr const char *ieee_float_names[n_ieee_floats] = {"H5T_IEEE_F32LE_g", "H5T_IEEE_F32BE_g",
                                                         "H5T_IEEE_F64LE_g", "H5T_IEEE_F64BE_g"};

// Where a library's functions are looked up.
class Lookup
{
  public:
    // library: dlopen's handle.
    Lookup(const Image &where, void *library, const char *prefix)
        : image_(where), library_(library), symbols_(nullptr), prefix_(prefix)
    {
    }
    Lookup(const Image &where, const SymbolTable &table)
        : image_(where), library_(nullptr), symbols_(&table), prefix_("")
    {
    }

    // What the library itself has by that name, not what another one of the process has.
    void *operator()(const char *name) const
    {
        if (symbols_) return symbols_->find(name);
        void *found = ask_loader(library_, name);
        return image_.holds(found, 1, 0) ? found : nullptr;
    }

    // One of the library's variables that hold identifiers. A program that uses it may have been
    // linked so that it brings the variable (a copy relocation); the library's own is then unused.
    const hid_t *variable(const char *name) const
    {
        const auto *own = static_cast<const hid_t *>((*this)(name));
        if (!own || symbols_ || *own > 0) return own;
        const auto *first = static_cast<const hid_t *>(ask_loader(RTLD_DEFAULT, name));
        Image holder = {};
        const bool is_programs = first && find_image(first, holder) && holder.is_program;
        return is_programs && *first > 0 ? first : own;
    }

  private:
    void *ask_loader(void *where, const char *name) const
    {
        char full[128];
        snprintf(full, sizeof full, "%s%s", prefix_, name);
        return dlsym(where, full);
    }

    const Image &image_;
    void *library_;
    const SymbolTable *symbols_; // nullptr to ask the loader
    const char *prefix_;
};

// The name of the first required function that the library lacks; nullptr where none is missing.
const char *bind_functions(Host &host, const Lookup &lookup)
{
    const char *missing = nullptr;
#define OPTIONAL(result, name, arguments)                                                          \
    host.hdf5.name = reinterpret_cast<result(*) arguments>(lookup(#name));
#define REQUIRED(result, name, arguments)                                                          \
    OPTIONAL(result, name, arguments)                                                              \
    if (!host.hdf5.name && !missing) missing = #name;
#include "hdf5_functions.inc"
#undef REQUIRED
#undef OPTIONAL
    host.default_dxpl = lookup.variable("H5P_LST_DATASET_XFER_ID_g");
    host.file_access = lookup.variable("H5P_CLS_FILE_ACCESS_ID_g");
    host.dataset_access = lookup.variable("H5P_CLS_DATASET_ACCESS_ID_g");
    host.sec2_driver = lookup.variable("H5FD_SEC2_id_g");
    host.sec2_driver_init = reinterpret_cast<hid_t (*)(void)>(lookup("H5FD_sec2_init"));
    host.mpio_driver = lookup.variable("H5FD_MPIO_id_g");
    host.mpio_driver_init = reinterpret_cast<hid_t (*)(void)>(lookup("H5FD_mpio_init"));
    for (int i = 0; i < n_ieee_floats; i++)
        host.ieee_floats[i] = lookup.variable(ieee_float_names[i]);
    if (!missing && !host.default_dxpl) missing = "H5P_LST_DATASET_XFER_ID_g";
    if (!missing && !(host.file_access && host.dataset_access)) missing = "H5P_CLS_*_ACCESS_ID_g";
    return missing;
}

// Both ways to find functions, the loader's first, which knows what a library exports.
const char *bind_somehow(Host &host, const Image &image, void *library)
{
    const char *missing = nullptr, *first_missing = nullptr;
    for (const char *prefix : prefixes) {
        missing = bind_functions(host, Lookup(image, library, prefix));
        if (!missing) {
            host.binding = "exported symbols";
            return nullptr;
        }
        if (!first_missing) first_missing = missing;
    }
    for (const char *prefix : prefixes) {
        const SymbolTable symbols(image, prefix);
        missing = bind_functions(host, Lookup(image, symbols));
        if (!missing) {
            host.binding = "symbol table";
            return nullptr;
        }
    }
    return first_missing;
}

Version version_of(const Host &host)
{
    // Public functions clear the error stack, and a plugin is also loaded after a failed open.
    ErrorStackKeeper keep(host);
    Version version = {0, 0, 0};
    host.hdf5.H5get_libversion(&version.major, &version.minor, &version.release);
    return version;
}

// Those with the interface that hdf5_abi.h declares. A later one may have changed it.
bool is_known(const Version &version)
{
    return (version.major == 1 && version.minor == 14) ||
           (version.major == 2 && version.minor <= 2);
}

// "HDF5 library version: 1.10.8", which every HDF5 since 1.8 holds.
bool read_version(const Image &image, const void *text, Version &version)
{
    constexpr char before[] = "HDF5 library version: ";
    constexpr size_t n_before = sizeof before - 1;
    if (!text || !image.holds(text, n_before, PF_R) || memcmp(text, before, n_before) != 0)
        return false;
    const char *at = static_cast<const char *>(text) + n_before;
    unsigned *const parts[] = {&version.major, &version.minor, &version.release};
    for (unsigned *part : parts) {
        *part = 0;
        const char *const first = at;
        for (; image.holds(at, 1, PF_R) && *at >= '0' && *at <= '9' && *part < 1000; at++)
            *part = 10 * *part + static_cast<unsigned>(*at - '0');
        if (at == first) return false;
        if (image.holds(at, 1, PF_R) && *at == '.') at++;
    }
    return true;
}

template <class... Values> bool refuse(Problem &problem, const char *format, Values... values)
{
    snprintf(problem.text, sizeof problem.text, format, values...);
    return false;
}

bool bind_host(Host &host, const Image &image, Problem &problem)
{
    host.segments = image.segments;
    snprintf(host.library, sizeof host.library, "%s", image.path);
    // The handle stays open: the library must not go while it can call what it was given.
    void *library = dlopen(image.is_program ? nullptr : image.path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return refuse(problem, "%s", "its symbols cannot be looked up");
    if (const char *missing = bind_somehow(host, image, library)) {
        Version version = {0, 0, 0};
        if (find_version(image, version) && refuse_older(problem, version)) return false;
        problem.version = version;
        return refuse(problem, "it hides %s, or is too old", missing);
    }
    const Version version = version_of(host);
    snprintf(host.version, sizeof host.version, "%u.%u.%u", version.major, version.minor,
             version.release);
    if (!is_known(version)) {
        problem.version = version;
        if (refuse_older(problem, version)) return false;
        return refuse(problem, "HDF5 %s is not known to this SDS", host.version);
    }
    host.native = host.registration = -1;
    fill_class(host);
    log_decision("bound", host.library, host.binding, host.version);
    return true;
}

} // namespace

const H5VL_class_t Host::no_class = {};
Host hosts[max_hosts];

void renew_binding()
{
    pthread_mutex_init(&binding, nullptr);
}

Host *host_of_caller(const void *return_address, Problem &problem)
{
    Image image = {};
    if (!find_loaded_image(return_address, image)) {
        refuse(problem, "%s", not_mapped);
        return nullptr;
    }
    watch_forks();
    pthread_mutex_lock(&binding);
    Host *found = nullptr;
    for (int i = 0; i < n_hosts && !found; i++)
        if (hosts[i].segments == image.segments) found = &hosts[i];
    if (!found && n_hosts == max_hosts) {
        refuse(problem, "%d other HDF5 libraries of the process are served", max_hosts);
    } else if (!found) {
        Host &candidate = hosts[n_hosts];
        memset(static_cast<void *>(&candidate), 0, sizeof candidate);
        candidate.slot = n_hosts;
        if (bind_host(candidate, image, problem)) {
            n_hosts++;
            found = &candidate;
        }
    }
    pthread_mutex_unlock(&binding);
    return found;
}

bool find_version(const Image &image, Version &version)
{
    constexpr char name[] = "H5_lib_vers_info_g";
    void *library = dlopen(image.is_program ? nullptr : image.path, RTLD_LAZY | RTLD_NOLOAD);
    bool found = false;
    for (size_t i = 0; library && !found && i < n_prefixes; i++)
        found = read_version(image, Lookup(image, library, prefixes[i])(name), version);
    for (size_t i = 0; !found && i < n_prefixes; i++) {
        const SymbolTable symbols(image, prefixes[i]);
        found = read_version(image, Lookup(image, symbols)(name), version);
    }
    if (library) dlclose(library);
    return found;
}

bool refuse_older(Problem &problem, const Version &version)
{
    if (version.major > 1 || version.minor >= 14) return false;
    problem.version = version;
    return !refuse(problem, "HDF5 %u.%u.%u is older than 1.14", version.major, version.minor,
                   version.release);
}

bool register_connector(Host &host)
{
    host.registration = host.hdf5.H5VLregister_connector(&host.connector_class, 0);
    return host.registration >= 0;
}

void give_up_registration(Host &host)
{
    if (host.registration >= 0) host.hdf5.H5VLclose(host.registration);
    host.registration = -1;
}

} // namespace sds::vol
