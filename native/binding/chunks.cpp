#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "binding.h"
#include "read_file.h"
#include "sds/chunked_read.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;
template <typename Number, int rank>
using Array = nb::ndarray<const Number, nb::ndim<rank>, nb::c_contig, nb::device::cpu>;

struct Codec {
    const char *name;
    const char *functions;
};
constexpr Codec codecs[] = {
#define XX(name, functions) {#name, functions},
    SDS_CODEC_MAP(XX)
#undef XX
};

// Of each codec its number and the names of the functions that it needs.
nb::dict codec_functions()
{
    nb::dict found;
    for (size_t i = 0; i < SDS_N_CODECS; i++)
        found[nb::str(codecs[i].name)] =
            nb::make_tuple(i, nb::str(codecs[i].functions).attr("split")());
    return found;
}

sds_filter filter_of(const nb::handle item)
{
    const auto [codec, options, functions] =
        nb::cast<std::tuple<int, std::vector<uint32_t>, std::vector<uintptr_t>>>(item);
    if (codec < 0 || codec >= SDS_N_CODECS || options.size() > SDS_FILTER_OPTIONS ||
        functions.size() > SDS_FILTER_FUNCTIONS)
        refuse("filter " + std::to_string(codec) + " is no codec, or has too many options");
    sds_filter filter = {};
    filter.codec = static_cast<sds_codec>(codec);
    for (size_t i = 0; i < options.size(); i++)
        filter.option[i] = options[i];
    const std::string needed = codecs[codec].functions;
    const auto n_needed =
        needed.empty() ? 0 : 1 + static_cast<size_t>(std::count(needed.begin(), needed.end(), ' '));
    if (functions.size() != n_needed)
        refuse(std::string(codecs[codec].name) + " needs the functions '" + needed + "'");
    for (size_t i = 0; i < functions.size(); i++) {
        if (functions[i] == 0) refuse("a filter's function cannot be NULL");
        filter.function[i] = reinterpret_cast<sds_filter_function>(functions[i]);
    }
    return filter;
}

sds_chunked_dataset dataset_of(const Axes &extent, const Axes &chunk, int64_t element_bytes,
                               const nb::list &filters, bool edges_unfiltered)
{
    if (extent.empty() || extent.size() != chunk.size() || extent.size() > SDS_MAX_RANK)
        refuse("extent " + text_of(extent) + " and chunk " + text_of(chunk) +
               " must be of one rank, 1 to " + std::to_string(SDS_MAX_RANK));
    if (element_bytes < 1) refuse("an element has at least one byte");
    if (filters.size() > SDS_MAX_FILTERS)
        refuse("at most " + std::to_string(SDS_MAX_FILTERS) + " filters");
    sds_chunked_dataset dataset = {};
    dataset.rank = static_cast<int32_t>(extent.size());
    memcpy(dataset.extent, extent.data(), extent.size() * sizeof(int64_t));
    memcpy(dataset.chunk, chunk.data(), chunk.size() * sizeof(int64_t));
    dataset.element_bytes = element_bytes;
    dataset.edges_unfiltered = edges_unfiltered;
    for (const nb::handle item : filters)
        dataset.filter[dataset.n_filters++] = filter_of(item);
    return dataset;
}

// An axis is given by (start, stride, count, block), or by an array of (first, length, position).
sds_axis_spans axis_of(nb::handle selected, int64_t result_length)
{
    static_assert(sizeof(sds_span) == 3 * sizeof(int64_t));
    sds_axis_spans axis = {};
    axis.result_length = result_length;
    if (nb::isinstance<nb::tuple>(selected)) {
        const auto [start, stride, count, block] =
            nb::cast<std::tuple<int64_t, int64_t, int64_t, int64_t>>(selected);
        if (count < 0) refuse("a count cannot be negative");
        axis.n = static_cast<size_t>(count);
        axis.regular = {start, block, 0};
        axis.stride = stride;
        return axis;
    }
    const auto spans = nb::cast<Array<int64_t, 2>>(selected, false); // no copy: it must live on
    if (spans.shape(1) != 3) refuse("a span is a first index, a length and a position");
    axis.n = spans.shape(0);
    axis.spans = reinterpret_cast<const sds_span *>(spans.data());
    return axis;
}

// What is selected, and of which chunks; for as long as the Python objects live.
struct Selection {
    std::vector<sds_axis_spans> axes;
    sds_chunk_points at = {};
    std::vector<uint8_t *> kept;
    sds_chunk_list chunks = {};

    const sds_axis_spans *axis() const { return axes.empty() ? nullptr : axes.data(); }
    const sds_chunk_points *points() const { return axes.empty() ? &at : nullptr; }
};

int64_t bytes_of_result(const Axes &shape, int64_t element_bytes)
{
    int64_t total = element_bytes;
    for (const int64_t length : shape)
        if (length < 0 || __builtin_mul_overflow(total, length, &total))
            check(SDS_EOVERFLOW, "result_shape");
    return total;
}

// Where whole chunks are kept: buffers of one size.
std::vector<uint8_t *> places_of(const nb::list &kept, const sds_chunked_dataset &dataset)
{
    std::vector<uint8_t *> places;
    int64_t chunk_bytes = dataset.element_bytes;
    for (int32_t k = 0; k < dataset.rank; k++)
        if (__builtin_mul_overflow(chunk_bytes, dataset.chunk[k], &chunk_bytes))
            check(SDS_EOVERFLOW, "chunk");
    for (const nb::handle item : kept) {
        const auto array =
            nb::cast<nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(item, false);
        if (static_cast<int64_t>(array.shape(0)) != chunk_bytes)
            refuse("a kept chunk has " + std::to_string(chunk_bytes) + " bytes");
        places.push_back(array.data());
    }
    return places;
}

void select(Selection &made, const sds_chunked_dataset &dataset, const nb::list &axes_selected,
            const Axes &result_shape, nb::object points, const Array<int64_t, 2> &index,
            const nb::list &kept)
{
    const auto rank = static_cast<size_t>(dataset.rank);
    const size_t n = index.shape(0);
    if (index.shape(1) != rank) refuse("index must have a number per axis");
    if (points.is_none()) {
        if (axes_selected.size() != rank || result_shape.size() != rank)
            refuse("one selection and one length of the result for each axis");
        for (size_t k = 0; k < rank; k++)
            made.axes.push_back(axis_of(axes_selected[k], result_shape[k]));
    } else {
        const auto [first, in_chunk, in_result] =
            nb::cast<std::tuple<Array<int64_t, 1>, Array<int64_t, 1>, Array<int64_t, 1>>>(points,
                                                                                          false);
        if (first.shape(0) != n + 1 || in_result.shape(0) != in_chunk.shape(0) ||
            first.data()[n] != static_cast<int64_t>(in_chunk.shape(0)))
            refuse("points must be those of as many chunks");
        made.at = {first.data(), in_chunk.data(), in_result.data(),
                   bytes_of_result(result_shape, 1)};
    }
    made.kept = places_of(kept, dataset);
    if (!made.kept.empty() && made.kept.size() != n) refuse("keep every chunk or none");
    made.chunks.n = n;
    made.chunks.index = index.data();
    made.chunks.kept = made.kept.empty() ? nullptr : made.kept.data();
}

nb::dict read_chunks(const ReadFile &file, const Axes &extent, const Axes &chunk,
                     int64_t element_bytes, const nb::list &filters, bool edges_unfiltered,
                     const nb::list &axes_selected, const Axes &result_shape, nb::object points,
                     Array<int64_t, 2> index, Array<int64_t, 1> offset, Array<int64_t, 1> size,
                     Array<uint32_t, 1> skipped, nb::object out, int32_t n_threads,
                     int64_t window_bytes, const nb::list &kept)
{
    const sds_chunked_dataset dataset =
        dataset_of(extent, chunk, element_bytes, filters, edges_unfiltered);
    Selection selection;
    select(selection, dataset, axes_selected, result_shape, points, index, kept);
    const size_t n = index.shape(0);
    if (offset.shape(0) != n || size.shape(0) != n || skipped.shape(0) != n)
        refuse("index, offset, size and skipped must describe as many chunks");
    selection.chunks.offset = offset.data();
    selection.chunks.size = size.data();
    selection.chunks.skipped = skipped.data();
    const int64_t total = bytes_of_result(result_shape, element_bytes);
    const Buffer into(out, true);
    if (into.size() != static_cast<size_t>(total))
        refuse("out has " + std::to_string(into.size()) + " bytes, the selection " +
               std::to_string(total));
    const sds_chunked_options options = {n_threads, window_bytes};
    sds_chunked_report report = {};
    sds_status status;
    int saved_errno;
    {
        const nb::gil_scoped_release released;
        status = sds_read_chunks(file.file(), &dataset, selection.axis(), selection.points(),
                                 &selection.chunks, &options, into.bytes(), &report);
        saved_errno = errno;
    }
    errno = saved_errno;
    check(status, "read_chunks");
    nb::dict made;
    made["chunks"] = report.chunks;
    made["requests"] = report.requests;
    made["bytes_read"] = report.bytes_read;
    made["memory_bytes"] = report.memory_bytes;
    made["threads"] = report.threads;
    return made;
}

void copy_chunks(const Axes &extent, const Axes &chunk, int64_t element_bytes,
                 const nb::list &axes_selected, const Axes &result_shape, nb::object points,
                 Array<int64_t, 2> index, nb::object out, const nb::list &kept)
{
    const sds_chunked_dataset dataset = dataset_of(extent, chunk, element_bytes, nb::list(), false);
    Selection selection;
    select(selection, dataset, axes_selected, result_shape, points, index, kept);
    if (selection.kept.size() != index.shape(0)) refuse("one kept chunk for each of index");
    const int64_t total = bytes_of_result(result_shape, element_bytes);
    const Buffer into(out, true);
    if (into.size() != static_cast<size_t>(total))
        refuse("out has " + std::to_string(into.size()) + " bytes, the selection " +
               std::to_string(total));
    sds_status status;
    {
        const nb::gil_scoped_release released;
        status = sds_copy_chunks(&dataset, selection.axis(), selection.points(), &selection.chunks,
                                 into.bytes());
    }
    check(status, "copy_chunks");
}

// Where the chunks of a dataset lie, as H5Dchunk_iter tells: the arrays that the caller prepared,
// one entry for each chunk of the grid in C order, are filled for those that are stored.
struct ChunkTable {
    const Axes &grid;
    const Axes &chunk;
    int64_t *offset;
    int64_t *size;
    uint32_t *skipped;
};

extern "C" int note_chunk(const uint64_t at[], unsigned skipped, uint64_t offset, uint64_t size,
                          void *argument)
{
    const auto *table = static_cast<const ChunkTable *>(argument);
    int64_t cell = 0;
    for (size_t k = 0; k < table->grid.size(); k++) {
        const uint64_t index = at[k] / static_cast<uint64_t>(table->chunk[k]);
        if (index >= static_cast<uint64_t>(table->grid[k])) return -1;
        cell = cell * table->grid[k] + static_cast<int64_t>(index);
    }
    if (offset > INT64_MAX || size > INT64_MAX) return -1;
    table->offset[cell] = static_cast<int64_t>(offset);
    table->size[cell] = static_cast<int64_t>(size);
    table->skipped[cell] = skipped;
    return 0;
}

bool fill_chunk_table(uintptr_t h5dchunk_iter, int64_t dataset, const Axes &grid, const Axes &chunk,
                      nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> offset,
                      nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> size,
                      nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> skipped)
{
    using Iterate = int (*)(int64_t, int64_t, decltype(&note_chunk), void *);
    int64_t n_cells = 1;
    for (const int64_t n : grid)
        if (n < 0 || __builtin_mul_overflow(n_cells, n, &n_cells)) check(SDS_EOVERFLOW, "grid");
    const auto n = static_cast<size_t>(n_cells);
    if (offset.shape(0) != n || size.shape(0) != n || skipped.shape(0) != n ||
        grid.size() != chunk.size())
        refuse("offset, size and skipped must have an entry for each chunk of the grid");
    for (const int64_t length : chunk)
        if (length < 1) refuse("a chunk cannot be empty");
    ChunkTable table = {grid, chunk, offset.data(), size.data(), skipped.data()};
    const nb::gil_scoped_release released;
    return reinterpret_cast<Iterate>(h5dchunk_iter)(dataset, 0, &note_chunk, &table) >= 0;
}

// Undo one filter of some bytes; returns at most `capacity` bytes.
nb::bytes undo_filter(const nb::tuple &filter, nb::object stored, size_t capacity)
{
    const sds_filter made = filter_of(filter);
    const Buffer in(stored);
    std::vector<uint8_t> out(capacity + 1);
    size_t produced = 0;
    check(sds_filter_undo(&made, nullptr, in.bytes(), in.size(), out.data(), capacity, &produced),
          "filter");
    return nb::bytes(out.data(), produced);
}

uint32_t fletcher32(nb::object content)
{
    const Buffer in(content);
    const nb::gil_scoped_release released;
    return sds_fletcher32(in.bytes(), in.size());
}

} // namespace

void bind_chunks(nb::module_ &module)
{
    module.def("fletcher32", &fletcher32, nb::arg("content"));
    module.def("codec_functions", &codec_functions);
    module.def("undo_filter", &undo_filter, nb::arg("step"), nb::arg("stored"),
               nb::arg("capacity"));
    module.def("fill_chunk_table", &fill_chunk_table, nb::arg("h5dchunk_iter"), nb::arg("dataset"),
               nb::arg("grid"), nb::arg("chunk"), nb::arg("offset").noconvert(),
               nb::arg("size").noconvert(), nb::arg("skipped").noconvert());
    module.def("read_chunks", &read_chunks, nb::arg("file"), nb::arg("extent"), nb::arg("chunk"),
               nb::arg("element_bytes"), nb::arg("filters"), nb::arg("edges_unfiltered"),
               nb::arg("axes"), nb::arg("result_shape"), nb::arg("points").none(), nb::arg("index"),
               nb::arg("offset"), nb::arg("size"), nb::arg("skipped"), nb::arg("out"),
               nb::arg("n_threads"), nb::arg("window_bytes") = 0, nb::arg("kept") = nb::list());
    module.def("copy_chunks", &copy_chunks, nb::arg("extent"), nb::arg("chunk"),
               nb::arg("element_bytes"), nb::arg("axes"), nb::arg("result_shape"),
               nb::arg("points").none(), nb::arg("index"), nb::arg("out"), nb::arg("kept"));
}
