// What the environment says about the connector. Read once, when the first host binds.
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "branch.h"

namespace sds::vol
{

// Who reads contiguous originals.
enum class Engine {
    never,  // HDF5
    faster, // SDS's engine where that is predicted to be faster
    always  // the engine whatever it can: to test it
};

struct Config {
    char home[PATH_MAX];       // SDS_HOME; "" where none can be named
    char replicas[PATH_MAX];   // canonical, ends in '/'; "" where there is no home
    char debug_file[PATH_MAX]; // SDS_DEBUG; "" for no log
    bool is_disabled;          // SDS_DISABLE=1, or a file "disabled" in the home
    bool trace;                // SDS_TRACE=0 turns it off
    bool redirect;             // SDS_REDIRECT=0 turns it off
    bool verify_reads;         // each block of a contiguous replica; SDS_VERIFY_READS=1 or a file
                               // "verify_reads" turns it on
    bool may_map;              // files for reading; SDS_MMAP=0 turns it off
    Engine engine;             // SDS_ENGINE: 0, 1 (the default) or always
    int32_t n_threads;    // that decode chunks of originals: SDS_THREADS; 0: as many as are idle
    int32_t n_processors; // that the batch job grants a task: SLURM_CPUS_PER_TASK
    bool has_service_uid; // SDS_SERVICE_UID: an account whose tables are trusted
    uid_t service_uid;
    int32_t rank;    // of the MPI launcher; -1: none
    int32_t n_ranks; // 1 without a launcher
    char job_id[64]; // "" outside a batch job
};

// Read at the first call.
extern const Config *known_config;
const Config &read_config();
inline const Config &config()
{
    const Config *known = __atomic_load_n(&known_config, __ATOMIC_ACQUIRE);
    return mostly(known) ? *known : read_config();
}

} // namespace sds::vol
