#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace sds::vol
{
namespace
{

Config settings;
pthread_once_t read_once = PTHREAD_ONCE_INIT;

// The variable's value; nullptr where it is unset or empty.
const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : nullptr;
}

const char *first_value_of(const char *const names[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (const char *value = value_of(names[i])) return value;
    return nullptr;
}

bool is(const char *name, const char *expected)
{
    const char *value = value_of(name);
    return value && strcmp(value, expected) == 0;
}

// A whole number in [low, high]; fallback for anything else.
long number_of(const char *text, long low, long high, long fallback)
{
    if (!text) return fallback;
    char *end = nullptr;
    errno = 0;
    const long value = strtol(text, &end, 10);
    return errno || *end || value < low || value > high ? fallback : value;
}

// True where the path fitted.
template <size_t N> bool print_path(char (&out)[N], const char *format, const char *directory)
{
    const int n = snprintf(out, N, format, directory);
    if (n > 0 && static_cast<size_t>(n) < N) return true;
    out[0] = '\0';
    return false;
}

void find_home()
{
    if (const char *named = value_of("SDS_HOME"))
        print_path(settings.home, "%s", named);
    else if (const char *data = value_of("XDG_DATA_HOME"))
        print_path(settings.home, "%s/sds", data);
    else if (const char *user = value_of("HOME"))
        print_path(settings.home, "%s/.local/share/sds", user);
    // A relative name must not mean another directory after the program has changed into one.
    char *canonical = settings.home[0] ? realpath(settings.home, nullptr) : nullptr;
    if (canonical) print_path(settings.home, "%s", canonical);
    free(canonical);
}

void find_replicas()
{
    if (settings.home[0] == '/') print_path(settings.replicas, "%s/replicas/", settings.home);
}

// Whether the home holds a file of this name.
bool has_mark(const char *name)
{
    char *path = nullptr;
    if (!settings.home[0] || asprintf(&path, "%s/%s", settings.home, name) < 0) return false;
    const bool exists = access(path, F_OK) == 0;
    free(path);
    return exists;
}

bool is_disabled()
{
    return is("SDS_DISABLE", "1") || has_mark("disabled");
}

// Launchers name rank, size and job each in their own way.
constexpr const char *rank_names[] = {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK",
                                      "MV2_COMM_WORLD_RANK", "SLURM_PROCID"};
constexpr const char *size_names[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE",
                                      "SLURM_NTASKS"};
constexpr const char *job_names[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID"};

template <size_t N> const char *first(const char *const (&names)[N])
{
    return first_value_of(names, N);
}

void read_environment()
{
    // Who runs a set-user-ID program chooses its environment, but not whose tables it trusts,
    // nor which files it writes.
    settings.rank = -1;
    settings.n_ranks = 1;
    settings.n_processors = INT_MAX;
    if (getauxval(AT_SECURE)) return;
    find_home();
    find_replicas();
    if (const char *file = value_of("SDS_DEBUG")) print_path(settings.debug_file, "%s", file);
    settings.may_map = !is("SDS_MMAP", "0");
    settings.verify_reads =
        is("SDS_VERIFY_READS", "1") || (!is("SDS_VERIFY_READS", "0") && has_mark("verify_reads"));
    settings.is_disabled = is_disabled();
    const bool enabled = !settings.is_disabled;
    settings.trace = enabled && settings.home[0] && !is("SDS_TRACE", "0");
    settings.redirect = enabled && settings.home[0] && !is("SDS_REDIRECT", "0");
    if (enabled && !is("SDS_ENGINE", "0"))
        settings.engine = is("SDS_ENGINE", "always") ? Engine::always : Engine::faster;
    settings.n_threads = static_cast<int32_t>(number_of(value_of("SDS_THREADS"), 0, INT_MAX, 0));
    settings.n_processors =
        static_cast<int32_t>(number_of(value_of("SLURM_CPUS_PER_TASK"), 1, INT_MAX, INT_MAX));
    const long uid = number_of(value_of("SDS_SERVICE_UID"), 0, INT_MAX, -1);
    settings.has_service_uid = uid >= 0;
    settings.service_uid = uid >= 0 ? static_cast<uid_t>(uid) : 0;
    settings.rank = static_cast<int32_t>(number_of(first(rank_names), 0, INT_MAX, -1));
    settings.n_ranks = static_cast<int32_t>(number_of(first(size_names), 1, INT_MAX, 1));
    if (const char *job = first(job_names))
        snprintf(settings.job_id, sizeof settings.job_id, "%s", job);
}

} // namespace

const Config *known_config = nullptr;

const Config &read_config()
{
    pthread_once(&read_once, read_environment);
    __atomic_store_n(&known_config, &settings, __ATOMIC_RELEASE);
    return settings;
}

} // namespace sds::vol
