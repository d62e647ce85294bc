#include "plan.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "binding.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;
using Numbers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Struct> struct Cost {
    const char *name;
    double Struct::*at;
};

constexpr Cost<sds_pmd_costs> pmd_costs[] = {
    {"te_s", &sds_pmd_costs::te_s},           {"tt_s_per_byte", &sds_pmd_costs::tt_s_per_byte},
    {"startup_s", &sds_pmd_costs::startup_s}, {"cud_s_per_byte", &sds_pmd_costs::cud_s_per_byte},
    {"lqdep_s", &sds_pmd_costs::lqdep_s},
};

constexpr Cost<sds_io_parameters> io_costs[] = {
    {"clients", &sds_io_parameters::clients},
    {"nodes", &sds_io_parameters::nodes},
    {"queued_startup_s", &sds_io_parameters::queued_startup_s},
    {"queue_setup_s", &sds_io_parameters::queue_setup_s},
    {"buffered_s_per_byte", &sds_io_parameters::buffered_s_per_byte},
    {"direct_s_per_byte", &sds_io_parameters::direct_s_per_byte},
    {"direct_setup_s", &sds_io_parameters::direct_setup_s},
    {"call_s", &sds_io_parameters::call_s},
    {"copy_s_per_byte", &sds_io_parameters::copy_s_per_byte},
    {"cached_copy_s_per_byte", &sds_io_parameters::cached_copy_s_per_byte},
    {"vector_s", &sds_io_parameters::vector_s},
    {"hole_s_per_byte", &sds_io_parameters::hole_s_per_byte},
    {"pick_s", &sds_io_parameters::pick_s},
    {"map_s", &sds_io_parameters::map_s},
    {"guard_s", &sds_io_parameters::guard_s},
    {"table_s", &sds_io_parameters::table_s},
    {"touch_s", &sds_io_parameters::touch_s},
    {"load_s", &sds_io_parameters::load_s},
    {"loaded_s_per_byte", &sds_io_parameters::loaded_s_per_byte},
};

template <typename Struct, size_t n>
bool set_cost(const Cost<Struct> (&costs)[n], Struct &into, const std::string &name,
              nb::handle value)
{
    for (const auto &cost : costs)
        if (name == cost.name) {
            into.*cost.at = nb::cast<double>(value);
            return true;
        }
    return false;
}

void set_pmd_costs(sds_pmd_costs &into, const nb::dict &from)
{
    for (const auto &[key, value] : from) {
        const auto name = nb::cast<std::string>(key);
        if (!set_cost(pmd_costs, into, name, value)) refuse("there is no cost \"" + name + "\"");
    }
}

nb::dict dict_of(const sds_pmd_costs &costs)
{
    nb::dict dict;
    for (const auto &cost : pmd_costs)
        dict[cost.name] = costs.*cost.at;
    return dict;
}

sds_pmd_costs pmd_costs_of(const nb::dict &dict)
{
    sds_io_parameters holder;
    sds_io_parameters_builtin(&holder);
    holder.reads = {};
    set_pmd_costs(holder.reads, dict);
    if (!sds_io_parameters_are_valid(&holder))
        refuse("a cost is negative or not finite: " + nb::cast<std::string>(nb::str(dict)));
    return holder.reads;
}

nb::dict io_parameters()
{
    sds_io_parameters costs;
    sds_io_parameters_builtin(&costs);
    return parameters_dict(costs);
}

nb::tuple chen_2014()
{
    sds_pmd_costs reads, writes;
    sds_pmd_costs_chen2014(&reads, &writes);
    return nb::make_tuple(dict_of(reads), dict_of(writes));
}

// What both planners take besides what is read.
struct How {
    std::optional<sds_io_parameters> parameters;
    sds_read_options options;
    sds_plan_given given;
    const sds_io_parameters *costs() const { return parameters ? &*parameters : nullptr; }
};

How how(nb::object parameters, const std::string &strategy, const std::string &cache,
        const std::string &executor, int32_t queue_depth, int32_t regions_per_request,
        int64_t sieve_buffer_bytes, int64_t max_memory_bytes, bool may_map, bool is_mapped,
        bool may_queue, bool may_read_directly, int64_t cache_room_bytes)
{
    How made = {};
    if (!parameters.is_none()) made.parameters = io_parameters_of(parameters);
    made.options.strategy = strategy_of(strategy);
    made.options.executor = executor_of(executor);
    made.options.queue_depth = queue_depth;
    made.options.regions_per_request = regions_per_request;
    made.options.sieve_buffer_bytes = sieve_buffer_bytes;
    made.options.max_memory_bytes = max_memory_bytes;
    made.given = {cache_of(cache), may_map,           is_mapped,
                  may_queue,       may_read_directly, cache_room_bytes};
    return made;
}

nb::dict plan_runs(int64_t first_offset, int64_t run_bytes, const Axes &counts,
                   const Axes &strides_bytes, nb::object parameters, const std::string &strategy,
                   const std::string &cache, const std::string &executor, int32_t queue_depth,
                   int32_t regions_per_request, int64_t sieve_buffer_bytes,
                   int64_t max_memory_bytes, bool may_map, bool is_mapped, bool may_queue,
                   bool may_read_directly, int64_t cache_room_bytes)
{
    const How by = how(parameters, strategy, cache, executor, queue_depth, regions_per_request,
                       sieve_buffer_bytes, max_memory_bytes, may_map, is_mapped, may_queue,
                       may_read_directly, cache_room_bytes);
    const sds_runs runs = runs_of(first_offset, run_bytes, counts, strides_bytes);
    sds_read_plan plan;
    const std::string what = "runs of " + std::to_string(run_bytes) + " bytes from offset " +
                             std::to_string(first_offset) + ", counts " + text_of(counts) +
                             ", strides " + text_of(strides_bytes) +
                             ": none may be negative, no stride shorter than what it repeats";
    check(sds_plan_runs(&runs, by.costs(), &by.options, &by.given, &plan), what.c_str());
    return plan_dict(plan);
}

nb::dict plan_pieces(const Numbers &offsets, const Numbers &lengths, nb::object parameters,
                     const std::string &strategy, const std::string &cache,
                     const std::string &executor, int32_t queue_depth, int32_t regions_per_request,
                     int64_t sieve_buffer_bytes, int64_t max_memory_bytes, bool may_map,
                     bool is_mapped, bool may_queue, bool may_read_directly,
                     int64_t cache_room_bytes)
{
    const How by = how(parameters, strategy, cache, executor, queue_depth, regions_per_request,
                       sieve_buffer_bytes, max_memory_bytes, may_map, is_mapped, may_queue,
                       may_read_directly, cache_room_bytes);
    if (offsets.shape(0) != lengths.shape(0))
        refuse(std::to_string(offsets.shape(0)) + " offsets and " +
               std::to_string(lengths.shape(0)) + " lengths: pass as many of both");
    sds_read_plan plan;
    sds_status status;
    {
        nb::gil_scoped_release released;
        std::vector<sds_piece> pieces(offsets.shape(0));
        int64_t position = 0;
        for (size_t i = 0; i < pieces.size(); i++) {
            pieces[i] = {offsets.data()[i], lengths.data()[i], position};
            /* What does not fit is refused with the lengths. */
            if (__builtin_add_overflow(position, lengths.data()[i], &position)) position = 0;
        }
        status = sds_plan_pieces(pieces.size(), pieces.data(), by.costs(), &by.options, &by.given,
                                 &plan);
    }
    check(status, "plan_pieces: pieces are sorted by offset, and none is empty");
    return plan_dict(plan);
}

double pmd_time_s(const nb::dict &costs, double clients, double nodes, double bytes)
{
    const sds_pmd_costs of = pmd_costs_of(costs);
    return sds_pmd_time_s(&of, clients, nodes, bytes);
}

double pmd_break_even_bytes(const nb::dict &costs, double clients, double nodes)
{
    const sds_pmd_costs of = pmd_costs_of(costs);
    return sds_pmd_break_even_bytes(&of, clients, nodes);
}

bool pmd_merges(const nb::dict &costs, double clients, double nodes, int64_t hole_bytes)
{
    const sds_pmd_costs of = pmd_costs_of(costs);
    return sds_pmd_merges(&of, clients, nodes, hole_bytes) != 0;
}

template <typename Value>
Value value_of(const std::string &name, const char *what, int n, const char *(*name_of)(Value))
{
    std::string known;
    for (int i = 0; i < n; i++) {
        const char *other = name_of(static_cast<Value>(i));
        if (name == other) return static_cast<Value>(i);
        known += std::string(i > 0 ? ", " : "") + other;
    }
    refuse("no " + std::string(what) + " is called '" + name + "'; there are " + known);
}

} // namespace

sds_runs runs_of(int64_t first_offset, int64_t run_bytes, const std::vector<int64_t> &counts,
                 const std::vector<int64_t> &strides_bytes)
{
    sds_runs runs = {};
    if (counts.size() != strides_bytes.size() || counts.size() > 2 * SDS_MAX_RANK)
        refuse("counts and strides_bytes must be as long as each other, and at most " +
               std::to_string(2 * SDS_MAX_RANK));
    runs.first_offset = first_offset;
    runs.run_bytes = run_bytes;
    runs.n_levels = static_cast<int32_t>(counts.size());
    for (size_t k = 0; k < counts.size(); k++)
        runs.level[k] = {counts[k], strides_bytes[k]};
    return runs;
}

sds_io_parameters io_parameters_of(nb::handle parameters)
{
    sds_io_parameters costs;
    sds_io_parameters_builtin(&costs);
    for (const auto &[key, value] : nb::cast<nb::dict>(parameters)) {
        const auto name = nb::cast<std::string>(key);
        if (name == "reads")
            set_pmd_costs(costs.reads, nb::cast<nb::dict>(value));
        else if (name == "writes")
            set_pmd_costs(costs.writes, nb::cast<nb::dict>(value));
        else if (name == "direct_min_bytes")
            costs.direct_min_bytes = nb::cast<int64_t>(value);
        else if (name == "queue_depth")
            costs.queue_depth = nb::cast<int32_t>(value);
        else if (name == "is_measured")
            costs.is_measured = nb::cast<bool>(value);
        else if (!set_cost(io_costs, costs, name, value))
            refuse("there is no parameter \"" + name + "\"");
    }
    if (!sds_io_parameters_are_valid(&costs))
        refuse("a cost is negative or not finite, or clients, nodes or queue_depth are below 1: " +
               nb::cast<std::string>(nb::str(parameters)));
    return costs;
}

nb::dict parameters_dict(const sds_io_parameters &costs)
{
    nb::dict dict;
    dict["reads"] = dict_of(costs.reads);
    dict["writes"] = dict_of(costs.writes);
    for (const auto &cost : io_costs)
        dict[cost.name] = costs.*cost.at;
    dict["direct_min_bytes"] = costs.direct_min_bytes;
    dict["queue_depth"] = costs.queue_depth;
    dict["is_measured"] = costs.is_measured != 0;
    return dict;
}

sds_strategy strategy_of(const std::string &name)
{
    return value_of(name, "strategy", SDS_STRATEGY_PMD + 1, sds_strategy_name);
}

sds_executor executor_of(const std::string &name)
{
    return value_of(name, "executor", SDS_EXECUTOR_DIRECT + 1, sds_executor_name);
}

sds_cache cache_of(const std::string &name)
{
    return value_of(name, "state of the cache", SDS_CACHE_COLD + 1, sds_cache_name);
}

nb::dict plan_dict(const sds_read_plan &plan)
{
    nb::dict dict;
    dict["strategy"] = sds_strategy_name(plan.strategy);
    dict["executor"] = sds_executor_name(plan.executor);
    dict["cache"] = sds_cache_name(plan.cache);
    dict["runs"] = plan.runs;
    dict["requests"] = plan.requests;
    dict["bytes_useful"] = plan.bytes_useful;
    dict["bytes_read"] = plan.bytes_read;
    dict["memory_bytes"] = plan.memory_bytes;
    dict["max_hole_bytes"] = plan.max_hole_bytes;
    dict["group_bytes"] = plan.group_bytes;
    dict["queue_depth"] = plan.queue_depth;
    dict["regions_per_request"] = plan.regions_per_request;
    dict["predicted_s"] = plan.predicted_s;
    return dict;
}

void bind_plan(nb::module_ &module)
{
    module.def("io_parameters", &io_parameters);
    module.def("chen_2014", &chen_2014);
    module.def(
        "plan_runs", &plan_runs, nb::arg("first_offset"), nb::arg("run_bytes"), nb::arg("counts"),
        nb::arg("strides_bytes"), nb::kw_only(), nb::arg("parameters") = nb::none(),
        nb::arg("strategy") = "auto", nb::arg("cache") = "unknown", nb::arg("executor") = "any",
        nb::arg("queue_depth") = 0, nb::arg("regions_per_request") = 0,
        nb::arg("sieve_buffer_bytes") = 0, nb::arg("max_memory_bytes") = 0,
        nb::arg("may_map") = false, nb::arg("is_mapped") = false, nb::arg("may_queue") = false,
        nb::arg("may_read_directly") = false, nb::arg("cache_room_bytes") = 0);
    module.def("plan_pieces", &plan_pieces, nb::arg("offsets"), nb::arg("lengths"), nb::kw_only(),
               nb::arg("parameters") = nb::none(), nb::arg("strategy") = "auto",
               nb::arg("cache") = "unknown", nb::arg("executor") = "any",
               nb::arg("queue_depth") = 0, nb::arg("regions_per_request") = 0,
               nb::arg("sieve_buffer_bytes") = 0, nb::arg("max_memory_bytes") = 0,
               nb::arg("may_map") = false, nb::arg("is_mapped") = false,
               nb::arg("may_queue") = false, nb::arg("may_read_directly") = false,
               nb::arg("cache_room_bytes") = 0);
    module.def("pmd_time_s", &pmd_time_s, nb::arg("costs"), nb::arg("clients"), nb::arg("nodes"),
               nb::arg("n_bytes"));
    module.def("pmd_break_even_bytes", &pmd_break_even_bytes, nb::arg("costs"), nb::arg("clients"),
               nb::arg("nodes"));
    module.def("pmd_merges", &pmd_merges, nb::arg("costs"), nb::arg("clients"), nb::arg("nodes"),
               nb::arg("hole_bytes"));
    module.def(
        "ratio_rule_sieves",
        [](int64_t bytes_useful, int64_t bytes_of_holes) {
            return sds_ratio_rule_sieves(bytes_useful, bytes_of_holes) != 0;
        },
        nb::arg("bytes_useful"), nb::arg("bytes_of_holes"));
}
