#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <variant>

#include "binding.h"
#include "plan.h"
#include "read_file.h"
#include "sds/list_io.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Numbers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Lengths = std::variant<int64_t, Numbers>; // of all, or of each

sds_regions regions_of(const Numbers &offsets, const Lengths &lengths, const char *list)
{
    sds_regions regions = {offsets.shape(0), offsets.data(), nullptr, 0};
    if (const auto *each = std::get_if<Numbers>(&lengths)) {
        if (each->shape(0) != regions.n)
            refuse(std::to_string(regions.n) + " offsets and " + std::to_string(each->shape(0)) +
                   " lengths of regions in " + list + ": pass as many of both");
        regions.lengths = each->data();
    } else {
        regions.length = std::get<int64_t>(lengths);
    }
    return regions;
}

sds_list list_of(const Numbers &file_offsets, const Lengths &file_lengths,
                 const std::optional<Numbers> &memory_offsets, const Lengths &memory_lengths,
                 size_t memory_bytes)
{
    sds_list list = {};
    list.in_file = regions_of(file_offsets, file_lengths, "the file");
    list.is_packed = !memory_offsets;
    if (memory_offsets) list.in_memory = regions_of(*memory_offsets, memory_lengths, "memory");
    list.memory_bytes = static_cast<int64_t>(memory_bytes);
    return list;
}

std::string region_text(const sds_list_fault &fault)
{
    return std::string(fault.is_in_memory ? "memory" : "file") + " region " +
           std::to_string(fault.region) + " (offset " + std::to_string(fault.offset) + ", length " +
           std::to_string(fault.length) + ")";
}

std::string explain(const sds_list_fault &fault)
{
    const std::string region = region_text(fault);
    switch (fault.rule) {
    case SDS_LIST_NEGATIVE:
        return region + ": offsets and lengths count bytes from 0 on; pass none that is negative";
    case SDS_LIST_TOO_FAR:
        return region + ": regions must end, and all lengths together stay, below 2**63 bytes";
    case SDS_LIST_OUTSIDE_MEMORY:
        return region + " reaches outside of the " + std::to_string(fault.memory_bytes) +
               " bytes of memory; pass a larger buffer";
    case SDS_LIST_SUMS_DIFFER:
        return "the regions hold " + std::to_string(fault.file_bytes) + " bytes in the file and " +
               std::to_string(fault.memory_bytes) + " in memory; pass lengths of the same sum";
    case SDS_LIST_OUTSIDE_FILE:
        return region + " reaches outside of the file, which has " +
               std::to_string(fault.file_bytes) + " bytes";
    case SDS_LIST_APPENDS:
        return "the file was opened to append: everything would be written at its end; open it "
               "without O_APPEND";
    }
    return region;
}

// Throw what stands against lists, or what went wrong.
void check_list(sds_status status, const sds_list_fault &fault, const char *what)
{
    if (status == SDS_EINVAL && fault.is_set) refuse(explain(fault));
    check(status, fault.is_set ? explain(fault).c_str() : what);
}

// What a read of lists took. The texts are made when they are asked for.
struct ListReport {
    sds_read_report report = {};
};

// A list as Python gives it: int64 in arrays, and of lengths one integer for all.
class Regions
{
  public:
    Regions(nb::handle offsets, nb::handle lengths)
        : offsets_(offsets), lengths_(lengths), has_one_length_(PyLong_CheckExact(lengths.ptr()))
    {
    }
    // False: to be converted first.
    bool is_usable() const
    {
        return offsets_.is_int64_list() && (has_one_length_ || lengths_.is_int64_list());
    }
    sds_regions get(nb::handle lengths, const char *list) const
    {
        sds_regions regions = {offsets_.size() / sizeof(int64_t),
                               static_cast<const int64_t *>(offsets_.bytes()), nullptr, 0};
        if (has_one_length_) {
            regions.length = nb::cast<int64_t>(lengths);
            return regions;
        }
        if (lengths_.size() != offsets_.size())
            refuse(std::to_string(regions.n) + " offsets and " +
                   std::to_string(lengths_.size() / sizeof(int64_t)) + " lengths of regions in " +
                   list + ": pass as many of both");
        regions.lengths = static_cast<const int64_t *>(lengths_.bytes());
        return regions;
    }

  private:
    FormattedBuffer offsets_, lengths_;
    bool has_one_length_;
};

// file: a descriptor, by the built-in costs, or a ReadFile. TypeError where an argument has to be
// converted first. Written for lists that take microseconds.
ListReport read_list(nb::handle file, nb::handle file_offsets, nb::handle file_lengths,
                     nb::handle memory_offsets, nb::handle memory_lengths, nb::handle memory,
                     nb::handle strategy, int32_t regions_per_request, int64_t sieve_buffer_bytes)
{
    const bool is_packed = memory_offsets.is_none();
    const Regions in_file(file_offsets, file_lengths);
    const FormattedBuffer into(memory, true);
    std::optional<Regions> in_memory;
    if (!is_packed) in_memory.emplace(memory_offsets, memory_lengths);
    if (!in_file.is_usable() || (in_memory && !in_memory->is_usable()) || !into.is_open() ||
        into.has_objects())
        throw nb::type_error("read_list takes lists of int64 in one dimension, and one length or "
                             "such a list of them, and a buffer of bytes that can be written");
    sds_read_options options = {};
    options.strategy = strategy_of(nb::cast<std::string>(strategy));
    options.regions_per_request = regions_per_request;
    options.sieve_buffer_bytes = sieve_buffer_bytes;
    sds_list list = {};
    list.in_file = in_file.get(file_lengths, "the file");
    list.is_packed = is_packed;
    if (in_memory) list.in_memory = in_memory->get(memory_lengths, "memory");
    list.memory_bytes = static_cast<int64_t>(into.size());
    const bool is_descriptor = PyLong_Check(file.ptr()); // an IntEnum as well
    const int fd = is_descriptor ? nb::cast<int>(file) : -1;
    sds_file *kept = is_descriptor ? nullptr : nb::cast<const ReadFile &>(file).file();
    ListReport made;
    sds_list_fault fault;
    sds_status status;
    int saved_errno;
    {
        const nb::gil_scoped_release released;
        status = kept != nullptr
                     ? sds_read_list(kept, &list, into.bytes(), &options, &made.report, &fault)
                     : sds_read_list_of(fd, &list, into.bytes(), &options, &made.report, &fault);
        saved_errno = errno;
    }
    errno = saved_errno;
    check_list(status, fault, "read_list");
    return made;
}

// What a read of lists would take, of a file that nothing is known of.
nb::dict plan_list(const Numbers &file_offsets, const Lengths &file_lengths,
                   const std::optional<Numbers> &memory_offsets, const Lengths &memory_lengths,
                   int64_t memory_bytes, const std::string &strategy, const std::string &cache,
                   int32_t regions_per_request, int64_t sieve_buffer_bytes)
{
    sds_read_options options = {};
    options.strategy = strategy_of(strategy);
    options.regions_per_request = regions_per_request;
    options.sieve_buffer_bytes = sieve_buffer_bytes;
    const sds_plan_given given = {cache_of(cache), 0, 0, 1, 0, 0};
    const sds_list list = list_of(file_offsets, file_lengths, memory_offsets, memory_lengths,
                                  static_cast<size_t>(memory_bytes));
    size_t n;
    sds_piece *pieces;
    sds_list_fault fault;
    sds_read_plan plan;
    sds_status status;
    {
        const nb::gil_scoped_release released;
        status = sds_list_pieces(&list, SDS_LIST_INTO_MEMORY, &n, &pieces, &fault);
        if (status == SDS_OK) {
            status = sds_plan_pieces(n, pieces, nullptr, &options, &given, &plan);
            free(pieces);
        }
    }
    check_list(status, fault, "plan_list");
    return plan_dict(plan);
}

nb::dict write_list(int fd, const Numbers &file_offsets, const Lengths &file_lengths,
                    const std::optional<Numbers> &memory_offsets, const Lengths &memory_lengths,
                    nb::object memory)
{
    const Buffer from(memory);
    const sds_list list =
        list_of(file_offsets, file_lengths, memory_offsets, memory_lengths, from.size());
    sds_write_report report;
    sds_list_fault fault;
    sds_status status;
    int saved_errno;
    {
        const nb::gil_scoped_release released;
        status = sds_write_list(fd, &list, from.bytes(), &report, &fault);
        saved_errno = errno;
    }
    errno = saved_errno;
    const std::string what =
        "write_list, " + std::to_string(report.bytes_written) + " bytes written";
    check_list(status, fault, what.c_str());
    nb::dict result;
    result["pieces"] = report.pieces;
    result["requests"] = report.requests;
    result["bytes_written"] = report.bytes_written;
    result["memory_bytes"] = report.memory_bytes;
    return result;
}

} // namespace

void bind_lists(nb::module_ &module)
{
    using Report = const ListReport &;
    nb::class_<ListReport>(module, "ListReport")
        .def_prop_ro("strategy",
                     [](Report of) { return sds_strategy_name(of.report.plan.strategy); })
        .def_prop_ro("executor",
                     [](Report of) { return sds_executor_name(of.report.plan.executor); })
        .def_prop_ro("queue", [](Report of) { return sds_queue_name(of.report.queue); })
        .def_prop_ro("cache", [](Report of) { return sds_cache_name(of.report.cache); })
        .def_prop_ro("runs", [](Report of) { return of.report.plan.runs; })
        .def_prop_ro("requests", [](Report of) { return of.report.requests; })
        .def_prop_ro("bytes_useful", [](Report of) { return of.report.plan.bytes_useful; })
        .def_prop_ro("bytes_read", [](Report of) { return of.report.bytes_read; })
        .def_prop_ro("memory_bytes", [](Report of) { return of.report.plan.memory_bytes; })
        .def_prop_ro("predicted_s", [](Report of) { return of.report.plan.predicted_s; })
        .def("__repr__", [](Report of) { return nb::repr(report_dict(of.report)); });
    module.def("read_list", &read_list, nb::arg("file"), nb::arg("file_offsets"),
               nb::arg("file_lengths"), nb::arg("memory_offsets").none(),
               nb::arg("memory_lengths").none(), nb::arg("memory"), nb::arg("strategy") = "auto",
               nb::arg("regions_per_request") = 0, nb::arg("sieve_buffer_bytes") = 0);
    // noconvert: what is not int64 already is copied by the caller, who knows whether that is
    // right.
    module.def("plan_list", &plan_list, nb::arg("file_offsets").noconvert(),
               nb::arg("file_lengths").noconvert(), nb::arg("memory_offsets").noconvert().none(),
               nb::arg("memory_lengths").noconvert(), nb::arg("memory_bytes"),
               nb::arg("strategy") = "auto", nb::arg("cache") = "cold",
               nb::arg("regions_per_request") = 0, nb::arg("sieve_buffer_bytes") = 0);
    module.def("write_list", &write_list, nb::arg("fd"), nb::arg("file_offsets").noconvert(),
               nb::arg("file_lengths").noconvert(), nb::arg("memory_offsets").noconvert().none(),
               nb::arg("memory_lengths").noconvert(), nb::arg("memory"));
}
