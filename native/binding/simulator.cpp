#include "sds/simulator.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>
#include <vector>

#include "binding.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;
// Of each process start, stride, count and block, each per axis.
using Slabs = nb::ndarray<const int64_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Parameters = sds_simulator_parameters;

struct Number {
    const char *name;
    int64_t Parameters::*at;
};

struct Quantity {
    const char *name;
    double Parameters::*at;
};

constexpr Number numbers[] = {
    {"page_bytes", &Parameters::page_bytes},
    {"read_ahead_bytes", &Parameters::read_ahead_bytes},
    {"read_ahead_gap_bytes", &Parameters::read_ahead_gap_bytes},
    {"read_ahead_after", &Parameters::read_ahead_after},
    {"rpc_bytes", &Parameters::rpc_bytes},
    {"max_rpcs_in_flight", &Parameters::max_rpcs_in_flight},
    {"fetch_bytes", &Parameters::fetch_bytes},
    {"processes_per_node", &Parameters::processes_per_node},
    {"processors_per_node", &Parameters::processors_per_node},
    {"ost_forgets", &Parameters::ost_forgets},
    {"disk_capacity_bytes", &Parameters::disk_capacity_bytes},
    {"n_aggregators", &Parameters::n_aggregators},
    {"collective_buffer_bytes", &Parameters::collective_buffer_bytes},
    {"max_events", &Parameters::max_events},
    {"jitter_seed", &Parameters::jitter_seed},
};

constexpr Quantity quantities[] = {
    {"client_request_s", &Parameters::client_request_s},
    {"client_bytes_per_s", &Parameters::client_bytes_per_s},
    {"network_latency_s", &Parameters::network_latency_s},
    {"ost_request_s", &Parameters::ost_request_s},
    {"ost_bytes_per_s", &Parameters::ost_bytes_per_s},
    {"disk_settle_s", &Parameters::disk_settle_s},
    {"disk_full_stroke_s", &Parameters::disk_full_stroke_s},
    {"disk_revolution_s", &Parameters::disk_revolution_s},
    {"disk_bytes_per_s", &Parameters::disk_bytes_per_s},
    {"client_jitter_s", &Parameters::client_jitter_s},
    {"client_start_s", &Parameters::client_start_s},
    {"disk_first_s", &Parameters::disk_first_s},
    {"disk_request_s", &Parameters::disk_request_s},
    {"shuffle_message_s", &Parameters::shuffle_message_s},
    {"shuffle_bytes_per_s", &Parameters::shuffle_bytes_per_s},
};

Parameters parameters_of(const nb::dict &given)
{
    Parameters parameters = {};
    const auto number = [&given](const char *name) { return nb::cast<int64_t>(given[name]); };
    parameters.striping = {number("stripe_bytes"), number("stripe_count")};
    parameters.raid = {number("unit_bytes"), number("data_disks"), number("min_request_bytes")};
    for (const Number &field : numbers)
        parameters.*field.at = number(field.name);
    for (const Quantity &field : quantities)
        parameters.*field.at = nb::cast<double>(given[field.name]);
    return parameters;
}

std::vector<sds_hyperslab> slabs_of(const Slabs &given, size_t rank)
{
    const size_t n = given.shape(0);
    if (rank > SDS_MAX_RANK || given.shape(1) != 4 || given.shape(2) != rank)
        check(SDS_EINVAL, "shape of the selections");
    std::vector<sds_hyperslab> slabs(n);
    for (size_t i = 0; i < n; i++) {
        const int64_t *from = given.data() + i * 4 * rank;
        slabs[i].rank = static_cast<int32_t>(rank);
        for (size_t axis = 0; axis < rank; axis++) {
            slabs[i].start[axis] = from[axis];
            slabs[i].stride[axis] = from[rank + axis];
            slabs[i].count[axis] = from[2 * rank + axis];
            slabs[i].block[axis] = from[3 * rank + axis];
        }
    }
    return slabs;
}

nb::dict simulate(const Axes &extent, int64_t element_bytes, int64_t offset_bytes,
                  const Slabs &selections, bool is_collective, int32_t strategy, int64_t list_depth,
                  int64_t sieve_buffer_bytes, const nb::dict &given, bool is_request_by_request)
{
    const Parameters parameters = parameters_of(given);
    const std::vector<sds_hyperslab> slabs = slabs_of(selections, extent.size());
    // The core refuses what is no number of OSTs; here it is a size.
    if (parameters.striping.stripe_count < 1 || parameters.striping.stripe_count > 1 << 18)
        check(SDS_EINVAL, "stripe_count");
    const auto n_osts = static_cast<size_t>(parameters.striping.stripe_count);
    sds_simulator_operation operation = {};
    operation.array.rank = static_cast<int32_t>(extent.size());
    operation.array.element_bytes = element_bytes;
    operation.array.offset_bytes = offset_bytes;
    std::memcpy(operation.array.extent, extent.data(), extent.size() * sizeof(int64_t));
    operation.n_processes = static_cast<int64_t>(slabs.size());
    operation.slabs = slabs.data();
    operation.is_collective = is_collective;
    operation.strategy = strategy;
    operation.list_depth = list_depth;
    operation.sieve_buffer_bytes = sieve_buffer_bytes;
    operation.is_request_by_request = is_request_by_request;
    std::vector<int64_t> link_busy_ns(n_osts), disk_busy_ns(n_osts);
    sds_simulated found;
    sds_status status;
    {
        nb::gil_scoped_release release;
        status =
            sds_simulate(&operation, &parameters, &found, link_busy_ns.data(), disk_busy_ns.data());
    }
    const bool is_too_long = status == SDS_ELIMIT && found.events > parameters.max_events;
    check(status, is_too_long ? "simulation of more events than max_events"
                              : "simulation of more than 2**60 ns, or of too large a file");
    nb::dict result;
    result["elapsed_ns"] = found.elapsed_ns;
    result["io_ns"] = found.io_ns;
    result["shuffle_ns"] = found.shuffle_ns;
    result["bytes_useful"] = found.bytes_useful;
    result["requests"] = found.requests;
    result["messages"] = found.messages;
    result["bytes_sent"] = found.bytes_sent;
    result["disk_accesses"] = found.disk_accesses;
    result["disk_seeks"] = found.disk_seeks;
    result["bytes_from_disk"] = found.bytes_from_disk;
    result["positioning_ns"] = found.positioning_ns;
    result["events"] = found.events;
    result["clients"] = found.clients;
    result["link_busy_ns"] = link_busy_ns;
    result["disk_busy_ns"] = disk_busy_ns;
    return result;
}

} // namespace

void bind_simulator(nb::module_ &module)
{
    module.attr("SIMULATE_MULTIPLE") = static_cast<int>(SDS_SIMULATE_MULTIPLE);
    module.attr("SIMULATE_SIEVE") = static_cast<int>(SDS_SIMULATE_SIEVE);
    module.attr("SIMULATE_LIST") = static_cast<int>(SDS_SIMULATE_LIST);
    module.def("simulate", &simulate, nb::arg("extent"), nb::arg("element_bytes"),
               nb::arg("offset_bytes"), nb::arg("selections"), nb::arg("is_collective"),
               nb::arg("strategy"), nb::arg("list_depth"), nb::arg("sieve_buffer_bytes"),
               nb::arg("parameters"), nb::arg("is_request_by_request"));
}
