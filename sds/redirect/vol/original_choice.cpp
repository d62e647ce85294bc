#include "original_choice.h"

#include <string.h>

#include "config.h"
#include "open_dataset.h"
#include "open_file.h"
#include "prediction.h"
#include "sds/read_plan.h"
#include "selection.h"
#include "type_digest.h"

namespace sds::vol
{
namespace
{

constexpr int32_t own_order[SDS_MAX_RANK] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                             11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                             22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
constexpr int64_t own_start[SDS_MAX_RANK] = {};

// What lies within a page is one request in any case.
constexpr int64_t page_bytes = 4096;

// ---- what HDF5 does

// Reads of contiguous data by HDF5: each run that does not lie in the sieve buffer has the buffer
// filled from there on; one that is longer than the buffer is read directly.
struct SievedRead {
    double runs;
    double requests;
    double bytes;    // read from the file
    double startups; // requests that do not begin where the one before ended, or soon after
};

// What HDF5 adds to a call, and what it takes to find a run in the buffer and to copy it.
constexpr double call_more_s = 0.3e-6;
constexpr double run_s = 11e-9;

// From and to the processor's caches, which the buffer stays in unless it is a large one.
constexpr double hot_s_per_byte = 1e-11;
constexpr double hot_run_s = 6e-9;
constexpr int64_t large_buffer_bytes = 1 << 20;

double hot_seconds(const SievedRead &read, const sds_io_parameters &costs, int64_t sieve_bytes)
{
    const double s_per_byte =
        sieve_bytes < large_buffer_bytes ? hot_s_per_byte : costs.copy_s_per_byte;
    return read.requests * (costs.call_s + call_more_s) + read.bytes * s_per_byte +
           read.runs * hot_run_s;
}

double warm_seconds(const SievedRead &read, const sds_io_parameters &costs)
{
    return read.requests * (costs.call_s + call_more_s) + read.bytes * costs.copy_s_per_byte +
           read.runs * run_s;
}

// One request at a time, as the core counts a stream: what it costs to copy is part of its rate.
double cold_seconds(const SievedRead &read, const sds_io_parameters &costs)
{
    const double streamed_s_per_byte = costs.reads.tt_s_per_byte + costs.reads.cud_s_per_byte;
    const double s_per_byte = streamed_s_per_byte > costs.buffered_s_per_byte
                                  ? streamed_s_per_byte
                                  : costs.buffered_s_per_byte;
    return read.startups * costs.reads.startup_s + read.bytes * s_per_byte +
           read.requests * (costs.call_s + call_more_s) + read.runs * run_s;
}

// Streams that requests make of which each covers so many runs of a level: what begins soon after
// the end of the one before.
double streams_in(const sds_runs &runs, int32_t level, int64_t per_request, int64_t request_bytes,
                  int64_t near_bytes)
{
    double streams = 1;
    int64_t span = request_bytes;
    for (int32_t outer = level; outer >= 0; outer--) {
        const sds_level &at = runs.level[outer];
        const int64_t n = outer == level ? per_request : 1;
        if (n * at.stride_bytes - span > near_bytes)
            streams *= static_cast<double>((at.count + n - 1) / n);
        span += (at.count - 1) * at.stride_bytes;
    }
    return streams;
}

SievedRead sieve(const sds_runs &runs, int64_t sieve_bytes)
{
    SievedRead read = {1, 1, 0, 1};
    int64_t length = runs.run_bytes; // of what one request covers, from its first byte
    int64_t within = 1;              // runs in it
    int32_t level = runs.n_levels - 1;
    for (; level >= 0; level--) {
        const int64_t span =
            (runs.level[level].count - 1) * runs.level[level].stride_bytes + length;
        if (span > sieve_bytes) break;
        length = span;
        within *= runs.level[level].count;
    }
    read.runs = static_cast<double>(within);
    for (int32_t outer = level; outer >= 0; outer--)
        read.runs *= static_cast<double>(runs.level[outer].count);
    int64_t per_request = 1;
    if (level < 0 || length > sieve_bytes) {
        read.requests = read.runs / static_cast<double>(within);
        read.bytes = read.requests * static_cast<double>(length);
    } else {
        per_request += (sieve_bytes - length) / runs.level[level].stride_bytes;
        const int64_t count = runs.level[level].count;
        read.requests = static_cast<double>((count + per_request - 1) / per_request);
        for (int32_t outer = level - 1; outer >= 0; outer--)
            read.requests *= static_cast<double>(runs.level[outer].count);
        read.bytes = read.requests * static_cast<double>(sieve_bytes);
    }
    // The kernel reads ahead of three requests that follow each other closely.
    const double streams = streams_in(runs, level, per_request,
                                      length > sieve_bytes ? length : sieve_bytes, sieve_bytes);
    read.startups = read.requests > 2 * streams ? streams : read.requests;
    return read;
}

// ---- what the engine does

constexpr double serving_s = 3e-6; // what serving costs besides reading
// Where everything lies in the processor's caches, few calls of HDF5 are hard to beat.
constexpr double hot_serving_s = 5.5e-6;
// Few files lie in the processor's caches when they are opened.
constexpr double part_at_stake = 0.25;
// Uncertain predictions: so much faster it must be where it gains most, and no slower elsewhere.
constexpr double clear_gain = 0.8;

// A program that reads once usually reads on. HDF5 has the device give it more than is asked for,
// which is cached when the next reads want it; the engine does not. So from the device HDF5 counts
// with its mean over so many reads of a shape, those behind which it has read as much as the
// dataset holds being cached.
constexpr double usual_reads = 10;

double walk_seconds(const SievedRead &read, const sds_io_parameters &costs, int64_t dataset_bytes)
{
    const double until_cached = static_cast<double>(dataset_bytes) / read.bytes;
    const double cold_part = until_cached < usual_reads ? until_cached / usual_reads : 1;
    return cold_part * cold_seconds(read, costs) + (1 - cold_part) * warm_seconds(read, costs);
}

// What the engine's plans are made of.
sds_plan_given given_of(OriginalFile &file)
{
    sds_plan_given given = {};
    const OriginalReader reader(file);
    if (reader.get()) sds_file_given(reader.get(), &given);
    return given;
}

// A read as the engine sees it.
struct RegularRead {
    OriginalFile &file;
    const sds_runs &runs;

    sds_status plan(const sds_plan_given &given, sds_read_plan &out) const
    {
        return sds_plan_runs(&runs, costs_of(file), nullptr, &given, &out);
    }
};

struct ListedRead {
    OriginalFile &file;
    const PieceList &list;

    sds_status plan(const sds_plan_given &given, sds_read_plan &out) const
    {
        return sds_plan_pieces(list.n(), list.pieces(), costs_of(file), nullptr, &given, &out);
    }
};

// What the engine is predicted to take, by plan(given, out). It is slower the first time: then it
// maps the file.
struct EngineRead {
    double hot_s; // from a mapping that is there; 0 where that is not asked
    double warm_s;
    double cold_s;
};

template <typename Read>
bool predict_engine(OriginalFile &file, const Read &read, bool may_be_hot, EngineRead &out)
{
    sds_plan_given given = given_of(file);
    sds_read_plan hot = {}, warm, cold;
    given.cache = SDS_CACHE_WARM;
    if (read.plan(given, warm) != SDS_OK) return false;
    given.is_mapped = given.may_map;
    if (may_be_hot && read.plan(given, hot) != SDS_OK) return false;
    given.is_mapped = 0;
    given.cache = SDS_CACHE_COLD;
    if (read.plan(given, cold) != SDS_OK) return false;
    out = {hot.predicted_s, warm.predicted_s, cold.predicted_s};
    return true;
}

// Or those that are built in.
sds_io_parameters known_costs_of(OriginalFile &file)
{
    sds_io_parameters costs;
    if (const sds_io_parameters *measured = costs_of(file))
        costs = *measured;
    else
        sds_io_parameters_builtin(&costs);
    return costs;
}

// Whether HDF5 may take longer than it takes to serve. Told without planning, and without what
// reads the file: programs open many files for one small read of each.
bool may_be_worth_it(OriginalFile &file, const SievedRead &by_hdf5_alone)
{
    return hot_seconds(by_hdf5_alone, known_costs_of(file), file.sieve_bytes) > hot_serving_s;
}

// More than that does not stay in the processor's own caches from one read to the next.
constexpr double max_hot_bytes = 2 << 20;

// Whether the first read of a file, which no mapping serves, is better left to HDF5: where all lies
// in the processor's caches, and calls would lose more than a part of what they gain where it does
// not. Told without planning, as programs that read many files once come no further.
bool is_first_slower(OriginalFile &file, const SievedRead &by_hdf5_alone)
{
    if (by_hdf5_alone.bytes > max_hot_bytes) return false;
    const sds_io_parameters costs = known_costs_of(file);
    const double calls_s = by_hdf5_alone.runs * costs.call_s;
    const double loss_s =
        hot_serving_s + calls_s - hot_seconds(by_hdf5_alone, costs, file.sieve_bytes);
    const double gain_s = warm_seconds(by_hdf5_alone, costs) - (serving_s + calls_s);
    return loss_s > 0 && loss_s > gain_s * part_at_stake;
}

template <typename Read>
int32_t judge(OriginalFile &file, const SievedRead &by_hdf5_alone, int64_t dataset_bytes,
              const Read &read, double factor)
{
    const bool may_be_hot = by_hdf5_alone.bytes <= max_hot_bytes;
    EngineRead engine;
    if (!predict_engine(file, read, may_be_hot, engine)) return by_hdf5;
    const sds_io_parameters costs = known_costs_of(file);
    const double hot = (hot_serving_s + engine.hot_s * factor) /
                       hot_seconds(by_hdf5_alone, costs, file.sieve_bytes);
    const double warm = (serving_s + engine.warm_s * factor) / warm_seconds(by_hdf5_alone, costs);
    const double cold =
        (serving_s + engine.cold_s * factor) / walk_seconds(by_hdf5_alone, costs, dataset_bytes);
    if ((hot > 1 && may_be_hot) || warm > 1) return by_hdf5;
    if (cold < clear_gain) return by_engine;
    return warm < clear_gain ? by_engine_if_cached : by_hdf5;
}

// ---- selections from outside

// HDF5 makes so many requests while a dataset is described and its first read is served.
constexpr int64_t few_requests = 32;
// Of elements that nobody has described yet.
constexpr int64_t usual_element_bytes = 8;

int64_t window_bytes_of(const OriginalFile &file)
{
    return file.sieve_bytes > page_bytes ? file.sieve_bytes : page_bytes;
}

// Elements from the first to the last that is selected, in the C order of the space; 0 where that
// cannot be told.
int64_t span_of(const Functions &hdf5, hid_t space)
{
    hsize_t extent[SDS_MAX_RANK], low[SDS_MAX_RANK], high[SDS_MAX_RANK];
    if (hdf5.H5Sselect_valid(space) <= 0) return 0; // has been moved out of the space
    const int rank = hdf5.H5Sget_simple_extent_dims(space, extent, nullptr);
    if (rank <= 0 || hdf5.H5Sget_select_bounds(space, low, high) < 0) return 0;
    hsize_t first = 0, last = 0;
    for (int axis = 0; axis < rank; axis++) {
        first = first * extent[axis] + low[axis];
        last = last * extent[axis] + high[axis];
    }
    return static_cast<int64_t>(last - first + 1);
}

// Whether it is of several runs that span more than so many elements. Of what is no dataspace HDF5
// prints that, where it is asked anything but what it is.
bool is_worth_predicting(const Host &host, hid_t space, int64_t window_elements)
{
    if (!is_selection(host, space)) return false; // HDF5 says so
    const hssize_t n = host.hdf5.H5Sget_select_npoints(space);
    if (n < min_elements) return false;
    const int64_t span = span_of(host.hdf5, space);
    return span > n && span > window_elements;
}

int64_t product_of(int32_t n, const int64_t factors[])
{
    int64_t product = 1;
    for (int32_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(product, factors[i], &product)) return -1;
    return product;
}

int64_t bytes_of(const sds_table_dataset &dataset)
{
    int64_t bytes = product_of(dataset.rank, dataset.extent);
    return bytes < 0 || __builtin_mul_overflow(bytes, dataset.element_bytes, &bytes) ? INT64_MAX
                                                                                     : bytes;
}

} // namespace

int64_t end_of(const StoredDataset &stored)
{
    int64_t end = product_of(stored.rank, stored.extent);
    if (end < 0 || __builtin_mul_overflow(end, stored.element_bytes, &end) ||
        __builtin_add_overflow(end, stored.data_offset_bytes, &end))
        return INT64_MAX;
    return end;
}

// Whether all of it lies in what HDF5 reads with one request, so that no read gains by the engine.
bool is_within_window(const OriginalFile &file, const StoredDataset &stored)
{
    const int64_t n = product_of(stored.rank, stored.extent);
    return stored.element_bytes > 0 && n >= 0 && n <= window_elements_of(file, stored);
}

bool may_be_read_by_engine(const Host &host, const OpenDataset &dataset, hid_t type)
{
    const StoredDataset &stored = dataset.description;
    const OriginalFile *file = dataset.file->original;
    if (file && config().engine != Engine::always && is_within_window(*file, stored)) return false;
    return file && stored.storage == SDS_STORAGE_CONTIGUOUS && stored.data_offset_bytes >= 0 &&
           stored.n_filters == 0 && stored.rank > 0 && stored.element_bytes > 0 &&
           product_of(stored.rank, stored.extent) > 0 && end_of(stored) <= file->end &&
           has_digest(host, type);
}

sds_table_dataset dataset_of_itself(const StoredDataset &stored)
{
    sds_table_dataset dataset = {};
    dataset.path = stored.path;
    dataset.rank = stored.rank;
    dataset.extent = stored.extent;
    dataset.element_bytes = stored.element_bytes;
    dataset.type_class = stored.type_class;
    dataset.storage = SDS_TABLE_CONTIGUOUS;
    dataset.data_offset_bytes = stored.data_offset_bytes;
    return dataset;
}

sds_candidate candidate_of_itself(const StoredDataset &stored, const Layouts &layouts)
{
    const sds_table_dataset &dataset = layouts.dataset;
    sds_candidate itself = {};
    itself.path = stored.file;
    itself.storage = SDS_TABLE_CONTIGUOUS;
    itself.data_offset_bytes = stored.data_offset_bytes;
    itself.rank = stored.rank;
    itself.order = own_order;
    itself.region_start = own_start;
    itself.region_extent = stored.extent;
    itself.layout = dataset.layout;
    itself.model = dataset.model;
    for (int32_t i = 0; i < dataset.n_candidates; i++) {
        const sds_candidate candidate = layouts.candidate(i);
        if (candidate.storage != SDS_TABLE_CONTIGUOUS || !candidate.model.calibrated) continue;
        itself.model = candidate.model;
        break;
    }
    return itself;
}

int64_t window_elements_of(const OriginalFile &file, const StoredDataset &stored)
{
    return window_bytes_of(file) / stored.element_bytes;
}

bool may_gain(Object &object, hid_t file_space, int64_t window_elements)
{
    if (config().engine == Engine::always) return true;
    if (file_space <= last_special_space) return false; // everything, in one piece
    const bool may = is_worth_predicting(*object.host, file_space, window_elements);
    count_look(object.small_reads, may);
    return may;
}

bool may_gain(const Host &host, hid_t file_space, int64_t window_elements)
{
    if (config().engine == Engine::always) return true;
    return file_space > last_special_space &&
           is_worth_predicting(host, file_space, window_elements);
}

bool is_first_and_small(const Object &object, hid_t file_space)
{
    OriginalFile *file = object.file ? object.file->original : nullptr;
    if (!file || config().engine == Engine::always ||
        __atomic_load_n(&file->n_judged, __ATOMIC_RELAXED) > 0)
        return false;
    const int64_t n = object.hdf5().H5Sget_select_npoints(file_space);
    const int64_t window = window_bytes_of(*file) / usual_element_bytes;
    if (n > few_requests && span_of(object.hdf5(), file_space) / window >= few_requests)
        return false;
    return __atomic_fetch_add(&file->n_judged, 1, __ATOMIC_RELAXED) == 0;
}

void look_behind(Object &object, const OpenDataset &dataset, int64_t n_elements,
                 const int64_t first[], const int64_t last[])
{
    if (!dataset.redirection || !are_many(object.small_reads)) return;
    const StoredDataset &stored = dataset.description;
    uint64_t behind = 0; // from the first to the last
    for (int32_t axis = 0; axis < stored.rank; axis++)
        behind = behind * static_cast<uint64_t>(stored.extent[axis]) +
                 static_cast<uint64_t>(last[axis] - first[axis]);
    const auto span = static_cast<int64_t>(behind + 1);
    if (span > n_elements && span > dataset.window_elements) count_look(object.small_reads, true);
}

OriginalChoice choose_for_original(OriginalFile &file, const sds_table_dataset &dataset,
                                   const sds_hyperslab &slab)
{
    if (config().engine == Engine::always) return {by_engine, false};
    sds_array array = {};
    array.rank = dataset.rank;
    memcpy(array.extent, dataset.extent, static_cast<size_t>(dataset.rank) * sizeof(int64_t));
    array.element_bytes = dataset.element_bytes;
    array.offset_bytes = dataset.data_offset_bytes;
    sds_runs runs;
    if (sds_runs_of(&array, &slab, &runs) != SDS_OK) return {by_hdf5, false};
    const SievedRead by_hdf5_alone = sieve(runs, file.sieve_bytes);
    if (!may_be_worth_it(file, by_hdf5_alone)) return {by_hdf5, false};
    const bool is_first = __atomic_fetch_add(&file.n_judged, 1, __ATOMIC_RELAXED) == 0;
    if (is_first && is_first_slower(file, by_hdf5_alone)) return {by_hdf5, true};
    return {judge(file, by_hdf5_alone, bytes_of(dataset), RegularRead{file, runs}, 1), false};
}

namespace
{

// HDF5 takes the runs as they come.
SievedRead sieve(const SampledRuns &sample, int64_t element_bytes, int64_t sieve_bytes)
{
    SievedRead read = {0, 0, 0, 0};
    int64_t begin = 0, end = 0; // of the buffer
    for (size_t i = 0; i < sample.n; i++) {
        const int64_t offset = sample.runs[i].offset * element_bytes;
        const int64_t length = sample.runs[i].length * element_bytes;
        read.runs += 1;
        if (offset >= begin && offset + length <= end) continue;
        read.requests += 1;
        if (length > sieve_bytes) {
            read.bytes += static_cast<double>(length);
            continue;
        }
        begin = offset;
        end = offset + sieve_bytes;
        read.bytes += static_cast<double>(sieve_bytes);
    }
    read.runs *= sample.factor;
    read.requests *= sample.factor;
    read.startups = read.requests;
    read.bytes *= sample.factor;
    return read;
}

} // namespace

int32_t choose_for_original(OriginalFile &file, const sds_table_dataset &dataset,
                            const SampledRuns &sample)
{
    if (config().engine == Engine::always) return by_engine;
    return judge(file, sieve(sample, dataset.element_bytes, file.sieve_bytes), bytes_of(dataset),
                 ListedRead{file, sample.sorted}, sample.factor);
}

} // namespace sds::vol
