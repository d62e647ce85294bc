#include "read_file.h"

#include <fcntl.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "binding.h"
#include "plan.h"
#include "sds/geometry.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;

// As in linux/magic.h, which lacks some: file systems whose clients know attributes for seconds
// after another host has changed them.
constexpr uint32_t remote_types[] = {
    0x6969 /* NFS */,     0xFF534D42 /* CIFS */, 0xFE534D42 /* SMB2 */,
    0x517B /* SMB */,     0x65735546 /* FUSE */, 0x01021997 /* 9p */,
    0x5346414F /* AFS */, 0x6B414653 /* kAFS */, 0x73757245 /* Coda */};

int64_t nanoseconds(const timespec &time)
{
    return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

} // namespace

Stamp stamp_of(const struct stat &found)
{
    return {found.st_dev, found.st_ino, found.st_size, nanoseconds(found.st_mtim),
            nanoseconds(found.st_ctim)};
}

ReadFile::ReadFile(nb::object path_or_descriptor, bool may_map, const Measured *measured,
                   bool follow_links, std::optional<std::pair<int64_t, int64_t>> replica_data,
                   bool checks_all, bool checks_soon)
{
    if (nb::isinstance<nb::int_>(path_or_descriptor)) {
        fd_ = nb::cast<int>(path_or_descriptor);
    } else {
        path_ = bytes_of_path(path_or_descriptor);
        const int alone = follow_links ? 0 : O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
        fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | alone);
        if (fd_ < 0) check(SDS_EIO, path_.c_str());
        is_own_ = true;
    }
    if (measured != nullptr) find_parameters(*measured);
    struct stat found;
    sds_status status = fstat(fd_, &found) == 0 ? SDS_OK : SDS_EIO;
    if (status == SDS_OK && replica_data) {
        sds_blocks *blocks;
        const sds_block_checks checks = checks_all    ? SDS_BLOCKS_ALL
                                        : checks_soon ? SDS_BLOCKS_SAMPLED_SOON
                                                      : SDS_BLOCKS_SAMPLED;
        status = sds_blocks_new(replica_data->first, replica_data->second, checks, &blocks);
        blocks_.reset(blocks);
        if (status == SDS_OK && checks_all) status = sds_blocks_load(blocks, fd_);
    }
    const sds_file_options options = {is_own_ ? path_.c_str() : nullptr,
                                      parameters_.is_measured ? &parameters_ : nullptr, may_map,
                                      blocks_.get()};
    if (status == SDS_OK) {
        stamp_ = stamp_of(found);
        status = sds_file_open(fd_, &options, &file_);
    }
    if (status != SDS_OK) {
        const int saved_errno = errno;
        if (is_own_) close(fd_);
        errno = saved_errno;
        check(status, is_own_ ? path_.c_str() : "descriptor");
    }
}

// Of any of its names: costs do not hang on which.
void ReadFile::find_parameters(const Measured &measured)
{
    struct statfs system;
    char *path = realpath(("/proc/self/fd/" + std::to_string(fd_)).c_str(), nullptr);
    const sds_io_parameters *found = nullptr;
    if (path != nullptr && fstatfs(fd_, &system) == 0)
        found = measured.find(path, static_cast<uint64_t>(system.f_type));
    if (found != nullptr) parameters_ = *found;
    std::free(path);
}

ReadFile::~ReadFile()
{
    const bool closes = is_own_ && is_open();
    sds_file_close(file_);
    if (closes) close(fd_);
}

bool ReadFile::is_open() const
{
    struct stat found;
    return fstat(fd_, &found) == 0 && found.st_dev == std::get<0>(stamp_) &&
           found.st_ino == std::get<1>(stamp_);
}

bool ReadFile::is_current() const
{
    struct stat found;
    return is_own_ && stat(path_.c_str(), &found) == 0 && stamp_of(found) == stamp_ && is_open();
}

bool ReadFile::is_linked() const
{
    struct stat found;
    return is_open() && fstat(fd_, &found) == 0 && found.st_nlink > 0;
}

uint64_t ReadFile::file_system_type() const
{
    struct statfs found;
    if (fstatfs(fd_, &found) != 0) check(SDS_EIO, "statfs");
    return static_cast<uint64_t>(found.f_type);
}

bool ReadFile::is_remote() const
{
    struct statfs found;
    if (fstatfs(fd_, &found) != 0) return true;
    const auto type = static_cast<uint32_t>(found.f_type);
    return std::find(std::begin(remote_types), std::end(remote_types), type) !=
           std::end(remote_types);
}

nb::dict report_dict(const sds_read_report &report)
{
    nb::dict result;
    result["strategy"] = sds_strategy_name(report.plan.strategy);
    result["executor"] = sds_executor_name(report.plan.executor);
    result["queue"] = sds_queue_name(report.queue);
    result["cache"] = sds_cache_name(report.cache);
    result["runs"] = report.plan.runs;
    result["requests"] = report.requests;
    result["bytes_useful"] = report.plan.bytes_useful;
    result["bytes_read"] = report.bytes_read;
    result["memory_bytes"] = report.plan.memory_bytes;
    result["predicted_s"] = report.plan.predicted_s;
    return result;
}

namespace
{

nb::dict read_runs(const ReadFile &self, int64_t first_offset, int64_t run_bytes,
                   const Axes &counts, const Axes &strides_bytes, nb::object out,
                   const std::string &strategy, const std::string &executor,
                   const std::string &cache, int32_t queue_depth, int64_t sieve_buffer_bytes,
                   int64_t max_memory_bytes)
{
    const sds_runs runs = runs_of(first_offset, run_bytes, counts, strides_bytes);
    int64_t total = run_bytes;
    for (const int64_t count : counts)
        if (__builtin_mul_overflow(total, count, &total)) check(SDS_EOVERFLOW, "runs");
    sds_read_options options = {};
    options.strategy = strategy_of(strategy);
    options.executor = executor_of(executor);
    options.cache = cache_of(cache);
    options.queue_depth = queue_depth;
    options.sieve_buffer_bytes = sieve_buffer_bytes;
    options.max_memory_bytes = max_memory_bytes;
    const Buffer into(out, true);
    if (total < 0 || into.size() != static_cast<size_t>(total))
        refuse("out has " + std::to_string(into.size()) + " bytes, the runs " +
               std::to_string(total));
    sds_read_report report;
    sds_status status;
    int saved_errno;
    {
        nb::gil_scoped_release released;
        status = sds_read_runs(self.file(), &runs, &options, into.bytes(), &report);
        saved_errno = errno;
    }
    errno = saved_errno;
    check(status, "read_runs");
    return report_dict(report);
}

} // namespace

void bind_read_file(nb::module_ &module)
{
    nb::list names;
    for (int k = 0; const char *name = sds_strategy_name(static_cast<sds_strategy>(k)); k++)
        names.append(name);
    module.attr("STRATEGIES") = nb::tuple(names);
    nb::list executors;
    for (int k = 0; const char *name = sds_executor_name(static_cast<sds_executor>(k)); k++)
        executors.append(name);
    module.attr("EXECUTORS") = nb::tuple(executors);
    nb::class_<ReadFile>(module, "ReadFile")
        .def(nb::init<nb::object, bool, const Measured *, bool,
                      std::optional<std::pair<int64_t, int64_t>>, bool, bool>(),
             nb::arg("path_or_descriptor"), nb::arg("may_map") = true,
             nb::arg("measured") = nb::none(), nb::arg("follow_links") = true,
             nb::arg("replica_data") = nb::none(), nb::arg("checks_all") = false,
             nb::arg("checks_soon") = false)
        .def_prop_ro("is_damaged", &ReadFile::is_damaged)
        .def("fileno", &ReadFile::fileno)
        .def("is_open", &ReadFile::is_open)
        .def("is_current", &ReadFile::is_current)
        .def_prop_ro("stamp", &ReadFile::stamp)
        .def("is_linked", &ReadFile::is_linked)
        .def_prop_ro("is_remote", &ReadFile::is_remote)
        .def_prop_ro("file_system_type", &ReadFile::file_system_type)
        .def(
            "announce",
            [](const ReadFile &self, int64_t offset, int64_t n_bytes) {
                sds_announce_range(self.fileno(), offset, n_bytes);
            },
            nb::arg("offset"), nb::arg("n_bytes"))
        .def("read_runs", &read_runs, nb::arg("first_offset"), nb::arg("run_bytes"),
             nb::arg("counts"), nb::arg("strides_bytes"), nb::arg("out"),
             nb::arg("strategy") = "auto", nb::kw_only(), nb::arg("executor") = "any",
             nb::arg("cache") = "unknown", nb::arg("queue_depth") = 0,
             nb::arg("sieve_buffer_bytes") = 0, nb::arg("max_memory_bytes") = 0);
}
