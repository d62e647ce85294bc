// The layouts of a dataset, as they are or might be: what reads cost in each, and which serves
// them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "binding.h"
#include "plan.h"
#include "sds/candidate.h"
#include "sds/choose.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Numbers = std::vector<int64_t>;
using Column = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename T> T get(const nb::dict &from, const char *key)
{
    if (!from.contains(key)) refuse(std::string("layouts: no ") + key);
    T value;
    if (!nb::try_cast(from[key], value))
        refuse(std::string("layouts: ") + key + " is " +
               nb::cast<std::string>(nb::repr(from[key])) + ", which is of the wrong type");
    return value;
}

// An equation with its margin.
struct Model {
    sds_cost_model equation = {};
    double margin = 1;

    explicit Model(const nb::dict &from)
    {
        using Fields = std::tuple<int32_t, int32_t, bool, std::vector<double>, double, double>;
        const auto [kind, gap, calibrated, coefficients, floor_s, factor] =
            get<Fields>(from, "model");
        if (sds_model_terms(kind) == 0 || gap < SDS_GAP_COUNT || gap > SDS_GAP_PAPER ||
            coefficients.size() > SDS_MODEL_TERMS || !(factor > 0))
            refuse("layouts: no model has kind " + std::to_string(kind) + ", gap " +
                   std::to_string(gap) + ", " + std::to_string(coefficients.size()) +
                   " coefficients and the margin " + std::to_string(factor));
        equation.kind = kind;
        equation.gap = gap;
        equation.calibrated = calibrated;
        equation.n_terms = static_cast<int32_t>(coefficients.size());
        margin = factor;
        equation.floor_s = floor_s * margin;
        for (size_t i = 0; i < coefficients.size(); i++)
            equation.coefficient[i] = coefficients[i] * margin;
    }
};

sds_file_layout layout_of(const nb::dict &from)
{
    const auto numbers = get<Numbers>(from, "layout");
    if (numbers.size() != 5) refuse("layouts: a layout is five numbers");
    if (std::any_of(numbers.begin(), numbers.end() - 1, [](int64_t n) { return n < 1; }) ||
        numbers.back() < 0)
        refuse("layouts: a layout of " + text_of(numbers));
    return {{numbers[0], numbers[1]}, {numbers[2], numbers[3], numbers[4]}};
}

Numbers list_of_rank(const nb::dict &from, const char *key, size_t rank)
{
    auto list = get<Numbers>(from, key);
    if (list.size() != rank)
        refuse(std::string("layouts: ") + key + " " + text_of(list) + " for " +
               std::to_string(rank) + " axes");
    return list;
}

// How a dataset, or a replica, is cut into chunks.
struct Chunks {
    Numbers shape;
    int64_t stored_bytes = 0;
    double decode_s_per_byte = 0;

    Chunks(const nb::dict &from, size_t rank)
    {
        if (from["chunk_shape"].is_none()) return;
        shape = list_of_rank(from, "chunk_shape", rank);
        if (std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 1; }))
            refuse("layouts: chunks " + text_of(shape));
        stored_bytes = get<int64_t>(from, "stored_bytes");
        decode_s_per_byte = get<double>(from, "decode_s_per_byte");
        if (stored_bytes < 0 || !(decode_s_per_byte >= 0))
            refuse("layouts: chunks of " + std::to_string(stored_bytes) + " bytes, decoded in " +
                   std::to_string(decode_s_per_byte) + " s each");
    }
    sds_chunking view() const { return {shape.data(), stored_bytes, decode_s_per_byte}; }
    int32_t storage() const { return shape.empty() ? SDS_TABLE_CONTIGUOUS : SDS_TABLE_CHUNKED; }
};

struct Candidate {
    std::vector<int32_t> order;
    Numbers start, extent, tile;
    Chunks chunks;
    Model model;
    sds_candidate view = {};

    Candidate(const nb::dict &from, const Numbers &source)
        : order(get<std::vector<int32_t>>(from, "order")), start(source.size(), 0), extent(source),
          chunks(from, source.size()), model(from)
    {
        const size_t rank = source.size();
        std::vector<int32_t> sorted = order;
        std::sort(sorted.begin(), sorted.end());
        for (size_t axis = 0; axis < rank; axis++)
            if (sorted.size() != rank || sorted[axis] != static_cast<int32_t>(axis))
                refuse("layouts: " + text_of(order) + " is no order of " + std::to_string(rank) +
                       " axes");
        if (!from["region"].is_none()) {
            using Region = std::tuple<Numbers, Numbers>;
            std::tie(start, extent) = get<Region>(from, "region");
            if (start.size() != rank || extent.size() != rank)
                refuse("layouts: a region of other axes than the dataset");
        }
        view.storage = chunks.storage();
        view.data_offset_bytes = get<int64_t>(from, "data_offset_bytes");
        view.rank = static_cast<int32_t>(rank);
        view.layout = layout_of(from);
        view.model = model.equation;
        view.shadow_permille = 1000;
        if (!from["tile_shape"].is_none()) {
            tile = list_of_rank(from, "tile_shape", rank);
            if (std::any_of(tile.begin(), tile.end(), [](int64_t n) { return n < 1; }))
                refuse("layouts: tiles " + text_of(tile));
            view.tiles.n = view.tiles.n_segments = 1;
        }
    }

    // Once it does not move any more.
    void connect(const Numbers &source)
    {
        view.order = order.data();
        view.region_start = start.data();
        view.region_extent = extent.data();
        view.chunks = chunks.view();
        if (view.tiles.n == 0) return;
        view.tiles.extent = source.data();
        view.tiles.shape = tile.data();
    }
};

nb::object array_of(std::unique_ptr<double[]> values, size_t rows, size_t columns)
{
    double *kept = values.release();
    nb::capsule owner(kept, [](void *p) noexcept { delete[] static_cast<double *>(p); });
    return nb::cast(nb::ndarray<nb::numpy, double>(kept, {rows, columns}, owner));
}

class Layouts
{
  public:
    Layouts(const nb::dict &from, nb::object parameters)
        : extent_(get<Numbers>(from, "extent")), chunks_(from, extent_.size()), model_(from)
    {
        if (extent_.empty() || extent_.size() > SDS_MAX_RANK ||
            std::any_of(extent_.begin(), extent_.end(), [](int64_t n) { return n < 0; }))
            refuse("layouts: a dataset of extent " + text_of(extent_));
        sds_table_dataset &dataset = layouts_.dataset;
        dataset.rank = static_cast<int32_t>(extent_.size());
        dataset.extent = extent_.data();
        dataset.element_bytes = get<int64_t>(from, "element_bytes");
        if (dataset.element_bytes < 1) refuse("layouts: elements of no bytes");
        dataset.storage = chunks_.storage();
        dataset.data_offset_bytes = get<int64_t>(from, "data_offset_bytes");
        dataset.chunks = chunks_.view();
        dataset.layout = layout_of(from);
        dataset.model = model_.equation;
        if (!get<nb::object>(from, "engine_model").is_none()) {
            nb::dict engine;
            engine["model"] = from["engine_model"];
            engine_model_.emplace(engine);
            layouts_.engine_model = &engine_model_->equation;
        }
        for (const nb::handle each : get<nb::list>(from, "candidates"))
            candidates_.emplace_back(nb::cast<nb::dict>(each), extent_);
        for (Candidate &each : candidates_) {
            each.connect(extent_);
            views_.push_back(each.view);
        }
        layouts_.candidates = views_.data();
        dataset.n_candidates = static_cast<int32_t>(views_.size());
        if (!parameters.is_none()) parameters_ = io_parameters_of(parameters);
    }
    Layouts(const Layouts &) = delete;
    Layouts &operator=(const Layouts &) = delete;

    nb::tuple choose(const Rows &start, const Rows &stride, const Rows &count, const Rows &block,
                     const Column &n_processes) const
    {
        const size_t n = start.shape(0), rank = extent_.size(), m = candidates_.size();
        for (const Rows *each : {&start, &stride, &count, &block})
            if (each->shape(0) != n || each->shape(1) != rank || n_processes.shape(0) != n)
                refuse("layouts: selections of other axes than the dataset");
        std::unique_ptr<double[]> original(new double[n * 2]);
        std::unique_ptr<double[]> seconds(new double[n * m]);
        std::unique_ptr<double[]> compared(new double[n * m]);
        std::unique_ptr<double[]> original_warm(new double[n]);
        std::unique_ptr<double[]> warm(new double[n * m]);
        std::vector<sds_read_cost> costs(m + 1);
        sds_choose_given given = {};
        given.parameters = parameters_ ? &*parameters_ : nullptr;
        given.engine_reads_original = layouts_.dataset.storage == SDS_TABLE_CONTIGUOUS;
        /* Nothing is in memory; that it could be has warm times computed. */
        given.probe = [](void *, int32_t) { return SDS_CACHE_COLD; };
        for (size_t i = 0; i < n; i++) {
            sds_hyperslab slab = {};
            slab.rank = layouts_.dataset.rank;
            for (size_t axis = 0; axis < rank; axis++) {
                slab.start[axis] = start(i, axis);
                slab.stride[axis] = stride(i, axis);
                slab.count[axis] = count(i, axis);
                slab.block[axis] = block(i, axis);
            }
            check_selection(slab);
            given.n_processes = static_cast<double>(n_processes(i));
            sds_read_costs found = {};
            found.candidate = costs.data();
            sds_choose(&layouts_, &slab, &given, &found);
            const bool is_plain = layouts_.dataset.storage == SDS_TABLE_CONTIGUOUS &&
                                  sds_is_one_run(layouts_.dataset.extent, &slab);
            const double original_s = sds_original_s(&found);
            const bool by_engine = original_s < sds_cold_s(&found.by_hdf5);
            original[2 * i + 1] =
                seconds_of(found.by_hdf5, found.by_hdf5.is_planned ? 1 : model_.margin);
            original[2 * i] =
                by_engine ? seconds_of(found.by_engine, engine_margin(found)) : original[2 * i + 1];
            original_warm[i] = std::min(original[2 * i], warm_of(found.original == SDS_BY_HDF5 ||
                                                                         found.by_engine.model_s < 0
                                                                     ? found.by_hdf5
                                                                     : found.by_engine));
            for (size_t j = 0; j < m; j++) {
                const double cold_s = sds_cold_s(&costs[j]);
                const bool serves = !is_plain && cold_s >= 0 && cold_s < original_s;
                seconds[i * m + j] = seconds_of(
                    costs[j], costs[j].is_planned ? SDS_PLAN_MARGIN : candidates_[j].model.margin);
                const double margin = costs[j].warm_s < cold_s ? SDS_PLAN_MARGIN : 1;
                warm[i * m + j] = std::min(seconds[i * m + j], warm_of(costs[j]) / margin);
                compared[i * m + j] = serves ? cold_s : std::numeric_limits<double>::infinity();
            }
        }
        return nb::make_tuple(
            array_of(std::move(original), n, 2), array_of(std::move(seconds), n, m),
            array_of(std::move(compared), n, m), array_of(std::move(original_warm), n, 1),
            array_of(std::move(warm), n, m));
    }

  private:
    // That which a time of the original by the engine holds, by the rule of a table where no model
    // is given.
    double engine_margin(const sds_read_costs &found) const
    {
        if (found.by_engine.is_planned) return 1;
        if (engine_model_) return engine_model_->margin;
        for (const Candidate &each : candidates_)
            if (each.view.storage == SDS_TABLE_CONTIGUOUS && each.view.model.calibrated)
                return each.model.margin;
        return 1;
    }

    static double warm_of(const sds_read_cost &cost)
    {
        return cost.model_s < 0 ? std::numeric_limits<double>::infinity() : cost.warm_s;
    }

    // Without the margin; infinite where there is no prediction.
    static double seconds_of(const sds_read_cost &cost, double margin)
    {
        return cost.model_s < 0 ? std::numeric_limits<double>::infinity()
                                : cost.model_s / margin + cost.more_s;
    }

    void check_selection(const sds_hyperslab &slab) const
    {
        sds_array array = {};
        array.rank = slab.rank;
        std::copy(extent_.begin(), extent_.end(), array.extent);
        array.element_bytes = layouts_.dataset.element_bytes;
        sds_runs runs;
        check(sds_runs_of(&array, &slab, &runs), "selection");
        if (runs.run_bytes == 0) refuse("layouts: nothing is selected");
    }

    Numbers extent_;
    Chunks chunks_;
    Model model_;
    std::optional<Model> engine_model_;
    std::vector<Candidate> candidates_;
    std::vector<sds_candidate> views_;
    sds_layouts layouts_ = {};
    std::optional<sds_io_parameters> parameters_;
};

} // namespace

void bind_layouts(nb::module_ &module)
{
    nb::class_<Layouts>(module, "Layouts")
        .def(nb::init<const nb::dict &, nb::object>(), nb::arg("layouts"),
             nb::arg("parameters") = nb::none())
        .def("choose", &Layouts::choose, nb::arg("start"), nb::arg("stride"), nb::arg("count"),
             nb::arg("block"), nb::arg("n_processes"));
    module.attr("HDF5_CHUNK_S") = SDS_HDF5_CHUNK_S;
    module.attr("MAX_METADATA_BYTES") = SDS_MAX_METADATA_BYTES;
    module.attr("MAX_CHUNK_BYTES") = SDS_MAX_CHUNK_BYTES;
    module.attr("REPLICA_SHIFT_BYTES") = SDS_REPLICA_SHIFT_BYTES;
    module.attr("REPLICA_LEAST_SHIFTED_BYTES") = SDS_REPLICA_LEAST_SHIFTED_BYTES;
    module.def(
        "replica_data_offset",
        [](const nb::int_ &size_bytes) { // of a dataset of any size
            const bool is_small =
                nb::cast<bool>(size_bytes.attr("__lt__")(SDS_REPLICA_LEAST_SHIFTED_BYTES));
            return sds_replica_data_offset(is_small ? 0 : INT64_MAX);
        },
        nb::arg("size_bytes"));
}
