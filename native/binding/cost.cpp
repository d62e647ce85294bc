// Cost models: predictions of one read, and of columns of inputs.
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "binding.h"
#include "sds/cost.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Columns = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

sds_bounds bounds_of(const nb::dict &dict, const char *key)
{
    const auto pair = nb::cast<nb::tuple>(dict[key]);
    return {nb::cast<int64_t>(pair[0]), nb::cast<int64_t>(pair[1])};
}

void check_kind(int32_t kind, int32_t gap)
{
    if (sds_model_terms(kind) == 0) check(SDS_EINVAL, "kind of model");
    if (gap < SDS_GAP_COUNT || gap > SDS_GAP_PAPER) check(SDS_EINVAL, "kind of block gap");
}

sds_cost_model model_of(int32_t kind, int32_t gap, const std::vector<double> &coefficients,
                        double floor_s)
{
    check_kind(kind, gap);
    if (coefficients.size() > SDS_MODEL_TERMS) check(SDS_EINVAL, "number of coefficients");
    sds_cost_model model = {};
    model.kind = kind;
    model.gap = gap;
    model.n_terms = static_cast<int32_t>(coefficients.size());
    model.floor_s = floor_s;
    for (size_t i = 0; i < coefficients.size(); i++)
        model.coefficient[i] = coefficients[i];
    return model;
}

sds_model_inputs model_inputs_from(const nb::dict &dict, double processes_per_ost)
{
    sds_features counted = {};
    counted.runs = nb::cast<int64_t>(dict["runs"]);
    counted.bytes_useful = nb::cast<int64_t>(dict["bytes_useful"]);
    counted.block_depth = bounds_of(dict, "block_depth");
    counted.block_gap_count = bounds_of(dict, "block_gap_count");
    counted.block_gap_distance = bounds_of(dict, "block_gap_distance");
    counted.bytes_touched = bounds_of(dict, "bytes_touched");
    counted.osts_touched = bounds_of(dict, "osts_touched");
    const auto sieve = nb::cast<nb::tuple>(dict["sieve"]);
    counted.sieve = {nb::cast<int64_t>(sieve[0]), nb::cast<int64_t>(sieve[1]),
                     nb::cast<int64_t>(sieve[2])};
    sds_model_inputs inputs;
    sds_model_inputs_of_read(&counted, nb::cast<int64_t>(dict["block_gap_paper"]),
                             processes_per_ost, &inputs);
    return inputs;
}

double predict(int32_t kind, int32_t gap, const std::vector<double> &coefficients, double floor_s,
               const nb::dict &features, double processes_per_ost)
{
    const sds_cost_model model = model_of(kind, gap, coefficients, floor_s);
    const sds_model_inputs inputs = model_inputs_from(features, processes_per_ost);
    return sds_cost_of(&model, &inputs);
}

nb::tuple model_inputs_of_read(const nb::dict &features, double processes_per_ost)
{
    const sds_model_inputs inputs = model_inputs_from(features, processes_per_ost);
    nb::list values;
#define XX(name) values.append(inputs.name);
    SDS_MODEL_INPUT_MAP(XX)
#undef XX
    return nb::tuple(values);
}

// Begin of each column.
std::vector<const double *> columns_of(const Columns &inputs)
{
    if (inputs.shape(0) != SDS_N_MODEL_INPUTS)
        refuse("inputs have " + std::to_string(inputs.shape(0)) + " columns, not " +
               std::to_string(SDS_N_MODEL_INPUTS) + ": one per name in MODEL_INPUTS");
    std::vector<const double *> begins;
    for (size_t m = 0; m < SDS_N_MODEL_INPUTS; m++)
        begins.push_back(inputs.data() + m * inputs.shape(1));
    return begins;
}

nb::object matrix_of(std::unique_ptr<double[]> values, size_t rows, size_t columns, bool is_flat)
{
    double *kept = values.release();
    nb::capsule owner(kept, [](void *p) noexcept { delete[] static_cast<double *>(p); });
    if (is_flat) return nb::cast(nb::ndarray<nb::numpy, double>(kept, {rows}, owner));
    return nb::cast(nb::ndarray<nb::numpy, double>(kept, {rows, columns}, owner));
}

nb::object predict_many(int32_t kind, int32_t gap, const std::vector<double> &coefficients,
                        double floor_s, const Columns &inputs)
{
    const sds_cost_model model = model_of(kind, gap, coefficients, floor_s);
    const std::vector<const double *> begins = columns_of(inputs);
    const size_t n = inputs.shape(1);
    std::unique_ptr<double[]> seconds(new double[n]);
    {
        nb::gil_scoped_release release;
        sds_cost_of_many(&model, n, begins.data(), seconds.get());
    }
    return matrix_of(std::move(seconds), n, 1, true);
}

nb::object terms(int32_t kind, int32_t gap, const Columns &inputs)
{
    check_kind(kind, gap);
    const std::vector<const double *> begins = columns_of(inputs);
    const size_t n = inputs.shape(1);
    const auto n_terms = static_cast<size_t>(sds_model_terms(kind));
    std::unique_ptr<double[]> found(new double[n * n_terms]);
    for (size_t i = 0; i < n; i++) {
        sds_model_inputs one;
#define XX(name) one.name = begins[sds__model_input_##name][i];
        SDS_MODEL_INPUT_MAP(XX)
#undef XX
        double row[SDS_MODEL_TERMS];
        sds_cost_terms(kind, gap, &one, row);
        memcpy(&found[i * n_terms], row, n_terms * sizeof(double));
    }
    return matrix_of(std::move(found), n, n_terms, false);
}

nb::tuple builtin_model()
{
    sds_cost_model model;
    sds_cost_builtin(&model);
    nb::list coefficients;
    for (int32_t i = 0; i < model.n_terms; i++)
        coefficients.append(model.coefficient[i]);
    return nb::make_tuple(model.kind, model.gap, nb::tuple(coefficients), model.floor_s);
}

} // namespace

void bind_cost(nb::module_ &module)
{
    nb::list names;
#define XX(name) names.append(#name);
    SDS_MODEL_INPUT_MAP(XX)
#undef XX
    module.attr("MODEL_INPUTS") = nb::tuple(names);
    module.def("predict", &predict, nb::arg("kind"), nb::arg("gap"), nb::arg("coefficients"),
               nb::arg("floor_s"), nb::arg("features"), nb::arg("processes_per_ost"));
    module.def("model_inputs_of_read", &model_inputs_of_read, nb::arg("features"),
               nb::arg("processes_per_ost"));
    module.def("predict_many", &predict_many, nb::arg("kind"), nb::arg("gap"),
               nb::arg("coefficients"), nb::arg("floor_s"), nb::arg("inputs"));
    module.def("terms", &terms, nb::arg("kind"), nb::arg("gap"), nb::arg("inputs"));
    module.def("builtin_model", &builtin_model);
}
