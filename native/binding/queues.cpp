#include "sds/queues.h"

#include <nanobind/ndarray.h>

#include <vector>

#include "binding.h"

namespace nb = nanobind;

namespace
{

using PerStream = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PerLevel = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Sets = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rates = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct Rate {
    const char *name;
    double sds_queue_rates::*at;
};

constexpr Rate rate_names[] = {
    {"run_s", &sds_queue_rates::run_s},
    {"run_byte_s", &sds_queue_rates::run_byte_s},
    {"trip_s", &sds_queue_rates::trip_s},
    {"reply_s", &sds_queue_rates::reply_s},
    {"sent_byte_s", &sds_queue_rates::sent_byte_s},
    {"first_s", &sds_queue_rates::first_s},
    {"seek_s", &sds_queue_rates::seek_s},
    {"reach_s", &sds_queue_rates::reach_s},
    {"read_byte_s", &sds_queue_rates::read_byte_s},
};

struct Found {
    const char *name;
    double sds_queued::*at;
};

constexpr Found found_names[] = {
    {"slowest_s", &sds_queued::slowest_s},
    {"even_s", &sds_queued::even_s},
    {"followed_s", &sds_queued::followed_s},
    {"followed_share", &sds_queued::followed_share},
    {"least_share", &sds_queued::least_share},
    {"disk_s", &sds_queued::disk_s},
    {"link_s", &sds_queued::link_s},
    {"working_s", &sds_queued::working_s},
    {"fetches", &sds_queued::fetches},
    {"fetched_bytes", &sds_queued::fetched_bytes},
    {"reads", &sds_queued::reads},
    {"read_bytes", &sds_queued::read_bytes},
    {"seeks", &sds_queued::seeks},
};

template <typename Named, size_t n> nb::tuple names_of(const Named (&all)[n])
{
    nb::list names;
    for (const Named &one : all)
        names.append(one.name);
    return nb::tuple(names);
}

nb::tuple follow_queues(const PerStream &begin, const PerStream &run_bytes, const PerLevel &counts,
                        const PerLevel &strides, const Sets &nodes, int64_t stripe_bytes,
                        int64_t stripe_count, int64_t page_bytes, int64_t gap_bytes,
                        int64_t window_bytes, int64_t after, int64_t end_bytes,
                        int64_t message_bytes, int64_t in_flight, const Rates &given,
                        int64_t max_fetches)
{
    const size_t n = begin.shape(0), n_levels = counts.shape(1);
    if (run_bytes.shape(0) != n || nodes.shape(0) != n || counts.shape(0) != n ||
        strides.shape(0) != n || strides.shape(1) != n_levels || n_levels > SDS_MAX_RANK)
        check(SDS_EINVAL, "shapes of begins, lengths, counts, strides and nodes");
    if (given.shape(0) != std::size(rate_names)) check(SDS_EINVAL, "number of rates");
    std::vector<sds_queue_stream> streams(n);
    for (size_t i = 0; i < n; i++)
        streams[i] = {begin.data()[i], run_bytes.data()[i], counts.data() + i * n_levels,
                      strides.data() + i * n_levels, nodes.data()[i]};
    sds_queue_rates rates = {};
    for (size_t i = 0; i < std::size(rate_names); i++)
        rates.*rate_names[i].at = given.data()[i];
    const sds_striping striping = {stripe_bytes, stripe_count};
    const sds_queue_client client = {page_bytes, gap_bytes,     window_bytes, after,
                                     end_bytes,  message_bytes, in_flight};
    sds_queued found;
    sds_status status;
    {
        nb::gil_scoped_release release;
        status = sds_follow_queues(n, streams.data(), static_cast<int32_t>(n_levels), &striping,
                                   &client, &rates, max_fetches, &found);
    }
    check(status, status == SDS_ELIMIT ? "time, messages under way or pages of an operation"
                                       : "streams, striping, client and rates");
    nb::list values;
    for (const Found &one : found_names)
        values.append(found.*one.at);
    return nb::tuple(values);
}

} // namespace

void bind_queues(nb::module_ &module)
{
    module.attr("QUEUE_RATES") = names_of(rate_names);
    module.attr("QUEUED") = names_of(found_names);
    module.def("follow_queues", &follow_queues, nb::arg("begin"), nb::arg("run_bytes"),
               nb::arg("counts"), nb::arg("strides"), nb::arg("nodes"), nb::arg("stripe_bytes"),
               nb::arg("stripe_count"), nb::arg("page_bytes"), nb::arg("gap_bytes"),
               nb::arg("window_bytes"), nb::arg("after"), nb::arg("end_bytes"),
               nb::arg("message_bytes"), nb::arg("in_flight"), nb::arg("rates"),
               nb::arg("max_fetches"));
}
