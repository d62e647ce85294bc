// Entry points: for HDF5, which loads the connector where a variable names it, and for the
// preloaded library (preload.c), which has it registered with an HDF5 that starts.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cancellation.h"
#include "chunk_filters.h"
#include "config.h"
#include "decision_log.h"
#include "elf_image.h"
#include "hdf5_memory.h"
#include "native_alias.h"
#include "untraced.h"
#include "vol_class.h"

#define SDS_EXPORT extern "C" __attribute__((visibility("default")))

SDS_EXPORT int H5PLget_plugin_type(void);
SDS_EXPORT const void *H5PLget_plugin_info(void);
SDS_EXPORT const char *sds_connector_for(const void *caller);

namespace
{

// HDF5 copies no object from one connector to another: h5repack opens files of the family, split
// and multi drivers natively, and copies from them. And no replica makes reading everything faster.
const char *reason_to_stay_native()
{
    const char *plugins = getenv("HDF5_PLUGIN_PRELOAD");
    if (plugins && strcmp(plugins, "::") == 0) return "HDF5_PLUGIN_PRELOAD='::' forbids plugins";
    if (strcmp(program_invocation_short_name, "h5repack") == 0)
        return "h5repack copies between files that are opened natively and others";
    return sds::vol::config().is_disabled ? "SDS is switched off" : nullptr;
}

// `sds run --verbose`
bool is_verbose()
{
    const char *value = getenv("SDS_VERBOSE");
    return value && strcmp(value, "1") == 0;
}

// The library runs natively: as wanted, or because it cannot be served.
void stay_native(const sds::vol::Image &library, const sds::vol::Problem &problem)
{
    const char *wanted = reason_to_stay_native();
    const char *reason = wanted ? wanted : problem.text;
    sds::vol::log_decision("native", library.path, "", reason);
    if (is_verbose())
        dprintf(STDERR_FILENO, "sds: %s runs without SDS: %s\n", library.path, reason);
    if (!wanted) sds::vol::note_untraced(library, problem.version, problem.text);
}

} // namespace

SDS_EXPORT int H5PLget_plugin_type(void)
{
    return sds::vol::plugin_type_vol;
}

// The class struct for the library that calls; it is told by the return address, so this function
// must not be inlined. A library that cannot be served gets its own native connector.
SDS_EXPORT __attribute__((noinline)) const void *H5PLget_plugin_info(void)
{
    const void *caller = __builtin_extract_return_addr(__builtin_return_address(0));
    if (const void *alias = sds::vol::known_native_alias(caller)) return alias;
    const sds::vol::CancellationKeeper keeper; // files are looked at, with HDF5 half started
    sds::vol::Problem problem = {};
    const sds::vol::Host *host = sds::vol::host_of_caller(caller, problem);
    if (!host) {
        sds::vol::Image image = {};
        if (!reason_to_stay_native() && sds::vol::find_loaded_image(caller, image))
            sds::vol::note_untraced(image, problem.version, problem.text);
        return sds::vol::make_native_alias(caller, problem.text);
    }
    sds::vol::find_codecs();
    sds::vol::find_malloc();
    return &host->connector_class;
}

// Registers the connector with the HDF5 that asks for HDF5_VOL_CONNECTOR, and returns the value
// that makes it the default; nullptr where that HDF5 is to run natively.
SDS_EXPORT const char *sds_connector_for(const void *caller)
{
    const sds::vol::CancellationKeeper keeper; // files are looked at, with HDF5 half started
    sds::vol::Image image = {};
    if (!sds::vol::find_loaded_image(caller, image)) image.path = "";
    sds::vol::Problem problem = {};
    const bool is_wanted_native = reason_to_stay_native() != nullptr;
    // A program with HDF5 linked in may ask before HDF5 does, which binding makes start.
    static __thread int depth = 0;
    static __thread bool has_started = false;
    if (depth > 0) {
        has_started = true;
        return nullptr;
    }
    depth++;
    sds::vol::Host *host = is_wanted_native ? nullptr : sds::vol::host_of_caller(caller, problem);
    depth--;
    if (host && has_started) host->stays_native = true;
    has_started = false;
    // HDF5 itself does not ask again while the connector is in use.
    if (host && (host->stays_native || host->native >= 0)) return nullptr;
    if (!host) {
        stay_native(image, problem);
        return nullptr;
    }
    if (is_verbose())
        dprintf(STDERR_FILENO, "sds: HDF5 %s runs under SDS: %s\n", host->version, image.path);
    sds::vol::find_codecs();
    sds::vol::find_malloc();
    return sds::vol::register_connector(*host) ? sds::vol::connector_variable : nullptr;
}
