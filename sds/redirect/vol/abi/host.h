// A host: one HDF5 library of this process that has loaded the connector.
//
// Wheels carry private HDF5 libraries, so that several of them, of different versions, can live in
// one process while the plugin is mapped once. Each host has a slot with its own functions and
// its own class struct; every object that the connector hands out knows its host.
#pragma once

#include <stddef.h>

#include "elf_image.h"
#include "hdf5_abi.h"

namespace sds::vol
{

// Pointers to the functions of one HDF5 library, by their own names.
struct Functions {
#define REQUIRED(result, name, arguments) result(*name) arguments;
#define OPTIONAL REQUIRED
#include "hdf5_functions.inc"
#undef REQUIRED
#undef OPTIONAL
};

struct Host;

struct Version {
    unsigned major, minor, release;
};

// What HDF5 keeps while it wraps objects for the connector.
struct WrapContext {
    Host *host;
    hid_t connector;
    void *under_context;
};

constexpr int n_ieee_floats = 4;

constexpr size_t line_bytes = 64; // of the processor's caches

struct alignas(line_bytes) Host {
    // Whatever it takes for what every call looks at to share a line.
    char before[line_bytes - offsetof(Functions, H5Pget_dxpl_mpio) % line_bytes];
    Functions hdf5; // what every call looks at comes last
    hid_t native;   // the native connector's id between initialize and terminate, else -1
    const H5VL_class_t *native_class; // then its callbacks, where they are to be called directly
    WrapContext native_wrap_context;  // one for all objects: spares an allocation per call
    const hid_t *default_dxpl;        // the library's variables, filled when it initialises
    const hid_t *file_access;         // classes of property lists, likewise
    const hid_t *dataset_access;
    const hid_t *sec2_driver; // 2.x; nullptr in 1.14
    hid_t (*sec2_driver_init)(void);
    const hid_t *mpio_driver; // the same of parallel builds
    hid_t (*mpio_driver_init)(void);
    const hid_t *ieee_floats[n_ieee_floats]; // F32LE, F32BE, F64LE, F64BE
    const void *segments;                    // of its image: tells libraries apart
    bool closes_replicas; // HDF5 will call before it ends, so that replicas are closed in time
    bool is_ending;       // it has called
    hid_t registration;   // by sds_connector_for, until HDF5 has taken it for its default; else -1
    bool stays_native;    // it has started while it was bound
    int slot;
    char version[16];    // "2.0.0"
    char library[512];   // path of the library
    const char *binding; // how its functions were found
    H5VL_class_t connector_class;

    // The callbacks of a connector below; without any where HDF5 is to call them.
    const H5VL_class_t &class_of(hid_t connector) const
    {
        return connector == native && native_class ? *native_class : no_class;
    }
    static const H5VL_class_t no_class;
};
static_assert(offsetof(Host, hdf5.H5Pget_dxpl_mpio) / line_bytes ==
                  (offsetof(Host, native_wrap_context) + sizeof(WrapContext) - 1) / line_bytes,
              "what every call looks at lies in one line of the cache");

constexpr int max_hosts = 8;

// Why a library cannot be served.
struct Problem {
    char text[128];
    Version version; // of the library; 0.0.0 where it is not known
};

// The host that owns the code at this address, bound at its first call.
// nullptr, and why, where the library cannot be served.
Host *host_of_caller(const void *return_address, Problem &problem);

// The version of a library, found without calling it, for it may be starting. False where the image
// holds no HDF5, or hides which.
bool find_version(const Image &image, Version &version);
// Write why a version is too old for any connector of SDS. False where it is not.
bool refuse_older(Problem &problem, const Version &version);

// Register the connector with a library that starts. False where it does not take it.
bool register_connector(Host &host);
// HDF5 holds the connector itself now. An identifier kept beyond that would have it outlive the
// native one when the library ends.
void give_up_registration(Host &host);

extern Host hosts[max_hosts]; // by slot
inline Host &host_at(int slot)
{
    return hosts[slot];
}

// In the child of a fork: another thread of the parent may have been binding a library, and is not
// in the child. A host counts only once it is whole.
void renew_binding();

} // namespace sds::vol
