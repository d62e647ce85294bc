#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "binding.h"
#include "sds/table_format.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

struct Release {
    void operator()(sds_table *table) const { sds_table_close(table); }
    void operator()(sds_table_builder *builder) const { sds_table_builder_free(builder); }
    void operator()(void *bytes) const { std::free(bytes); }
};

template <typename T> nb::list list_of(const T *values, int32_t n)
{
    nb::list list;
    for (int32_t i = 0; i < n; i++)
        list.append(values[i]);
    return list;
}

nb::dict dict_of(const sds_identity &from)
{
    nb::dict to;
    to["inode"] = from.inode;
    to["size_bytes"] = from.size_bytes;
    to["mtime_ns"] = from.mtime_ns;
    to["ctime_ns"] = from.ctime_ns;
    return to;
}

nb::dict dict_of(const sds_file_layout &from)
{
    nb::dict to;
    to["stripe_size_bytes"] = from.striping.stripe_bytes;
    to["stripe_count"] = from.striping.stripe_count;
    to["unit_bytes"] = from.raid.unit_bytes;
    to["data_disks"] = from.raid.data_disks;
    to["min_request_bytes"] = from.raid.min_request_bytes;
    return to;
}

nb::dict dict_of(const sds_cost_model &from)
{
    nb::dict to;
    to["kind"] = from.kind;
    to["gap"] = from.gap;
    to["calibrated"] = from.calibrated != 0;
    to["coefficients"] = list_of(from.coefficient, from.n_terms);
    to["floor_s"] = from.floor_s;
    return to;
}

// By sds_table_storage.
constexpr const char *storage_names[] = {"other", "contiguous", "chunked"};

// The chunk shape is empty where there are no chunks.
void put_chunking(nb::dict &to, const sds_chunking &from, int32_t storage, int32_t rank)
{
    to["chunk"] = list_of(from.shape, storage == SDS_TABLE_CHUNKED ? rank : 0);
    to["stored_bytes"] = from.stored_bytes;
    to["decode_s_per_byte"] = from.decode_s_per_byte;
}

// In stored order; None of a replica without tiles.
nb::object segments_of(const sds_candidate &from)
{
    const sds_tiles &tiles = from.tiles;
    if (tiles.n == 0) return nb::none();
    std::vector<int64_t> stored(static_cast<size_t>(tiles.n));
    for (int32_t i = 0; i < tiles.n; i++)
        stored[tiles.place[i]] = tiles.number[i];
    nb::list lengths;
    for (int32_t i = 0; i < tiles.n_segments; i++)
        lengths.append(tiles.segment_end[i] - (i > 0 ? tiles.segment_end[i - 1] : 0));
    nb::dict to;
    to["tile_shape"] = list_of(tiles.shape, from.rank);
    to["tiles"] = list_of(stored.data(), tiles.n);
    to["lengths"] = lengths;
    return to;
}

nb::dict dict_of(const sds_candidate &from)
{
    nb::dict to;
    to["replica_id"] = from.replica_id;
    to["path"] = path_of_bytes(from.path);
    to["identity"] = dict_of(from.identity);
    to["storage"] = storage_names[from.storage];
    to["data_offset_bytes"] = from.data_offset_bytes;
    to["metadata_crc32c"] = from.metadata_crc32c;
    put_chunking(to, from.chunks, from.storage, from.rank);
    to["order"] = list_of(from.order, from.rank);
    to["region_start"] = list_of(from.region_start, from.rank);
    to["region_extent"] = list_of(from.region_extent, from.rank);
    to["segments"] = segments_of(from);
    to["layout"] = dict_of(from.layout);
    to["model"] = dict_of(from.model);
    to["shadow_permille"] = from.shadow_permille;
    return to;
}

nb::dict dict_of(const sds_table *table, int32_t i)
{
    sds_table_dataset from;
    check(sds_table_dataset_at(table, i, &from), "dataset");
    nb::dict to;
    to["path"] = path_of_bytes(from.path);
    to["extent"] = list_of(from.extent, from.rank);
    to["element_bytes"] = from.element_bytes;
    to["type_crc32c"] = from.type_crc32c;
    to["type_class"] = from.type_class;
    to["storage"] = storage_names[from.storage];
    to["data_offset_bytes"] = from.data_offset_bytes;
    put_chunking(to, from.chunks, from.storage, from.rank);
    to["layout"] = dict_of(from.layout);
    to["model"] = dict_of(from.model);
    nb::list candidates;
    for (int32_t j = 0; j < from.n_candidates; j++) {
        sds_candidate candidate;
        check(sds_table_candidate_at(table, i, j, &candidate), "candidate");
        candidates.append(dict_of(candidate));
    }
    to["candidates"] = candidates;
    return to;
}

nb::dict decode_table(nb::object bytes)
{
    const Buffer view(bytes);
    sds_table *opened = nullptr;
    check(sds_table_from_bytes(view.bytes(), view.size(), &opened), "redirect table");
    const std::unique_ptr<sds_table, Release> table(opened);
    nb::dict to;
    to["version"] = SDS_TABLE_VERSION;
    to["source_path"] = path_of_bytes(sds_table_source_path(opened));
    to["source_identity"] = dict_of(*sds_table_source_identity(opened));
    to["source_instance"] = sds_table_source_instance(opened);
    nb::list datasets;
    for (int32_t i = 0; i < sds_table_n_datasets(opened); i++)
        datasets.append(dict_of(opened, i));
    to["datasets"] = datasets;
    return to;
}

using Numbers = std::vector<int64_t>;

template <typename T> T number(const nb::dict &from, const char *key)
{
    if (!from.contains(key)) refuse(std::string("redirect table: no ") + key);
    T value;
    if (!nb::try_cast(from[key], value))
        refuse(std::string("redirect table: ") + key + " is " +
               nb::cast<std::string>(nb::repr(from[key])) + ", which is of the wrong type or size");
    return value;
}

sds_identity identity_of(const nb::dict &from)
{
    return {number<uint64_t>(from, "inode"), number<int64_t>(from, "size_bytes"),
            number<int64_t>(from, "mtime_ns"), number<int64_t>(from, "ctime_ns")};
}

sds_file_layout layout_of(const nb::dict &from)
{
    return {{number<int64_t>(from, "stripe_size_bytes"), number<int64_t>(from, "stripe_count")},
            {number<int64_t>(from, "unit_bytes"), number<int64_t>(from, "data_disks"),
             number<int64_t>(from, "min_request_bytes")}};
}

sds_cost_model model_of(const nb::dict &from)
{
    sds_cost_model model = {};
    model.kind = number<int32_t>(from, "kind");
    model.gap = number<int32_t>(from, "gap");
    model.calibrated = number<bool>(from, "calibrated");
    const auto coefficients = number<std::vector<double>>(from, "coefficients");
    if (coefficients.size() > SDS_MODEL_TERMS)
        refuse("redirect table: a cost model has at most " + std::to_string(SDS_MODEL_TERMS) +
               " coefficients, not " + std::to_string(coefficients.size()));
    model.n_terms = static_cast<int32_t>(coefficients.size());
    for (size_t i = 0; i < coefficients.size(); i++)
        model.coefficient[i] = coefficients[i];
    model.floor_s = number<double>(from, "floor_s");
    return model;
}

int32_t storage_of(const nb::dict &from)
{
    const auto name = number<std::string>(from, "storage");
    for (int32_t storage = SDS_TABLE_OTHER; storage <= SDS_TABLE_CHUNKED; storage++)
        if (name == storage_names[storage]) return storage;
    refuse("redirect table: storage is '" + name + "'; give other, contiguous or chunked");
}

sds_chunking chunking_of(const nb::dict &from, const Numbers &shape, size_t rank)
{
    if (!shape.empty() && shape.size() != rank)
        refuse("redirect table: a chunk of " + std::to_string(shape.size()) +
               " axes for a dataset of " + std::to_string(rank));
    return {shape.empty() ? nullptr : shape.data(), number<int64_t>(from, "stored_bytes"),
            number<double>(from, "decode_s_per_byte")};
}

Numbers list_of_rank(const nb::dict &from, const char *key, size_t rank)
{
    auto list = number<Numbers>(from, key);
    if (list.size() != rank)
        refuse(std::string("redirect table: ") + key + " has " + std::to_string(list.size()) +
               " axes, the dataset " + std::to_string(rank));
    return list;
}

// Tiles as a builder takes them.
struct Tiles {
    Numbers shape, numbers;
    std::vector<uint32_t> place, segment_end;

    Tiles(const nb::dict &from, size_t rank) : shape(list_of_rank(from, "tile_shape", rank))
    {
        const auto stored = number<Numbers>(from, "tiles");
        if (stored.empty() || stored.size() > SDS_TABLE_MAX_TILES)
            refuse("redirect table: " + std::to_string(stored.size()) +
                   " tiles; a replica has 1 to " + std::to_string(SDS_TABLE_MAX_TILES));
        place.resize(stored.size());
        std::iota(place.begin(), place.end(), 0U);
        std::sort(place.begin(), place.end(),
                  [&](uint32_t a, uint32_t b) { return stored[a] < stored[b]; });
        for (const uint32_t at : place)
            numbers.push_back(stored[at]);
        uint32_t end = 0;
        for (const uint32_t length : number<std::vector<uint32_t>>(from, "lengths"))
            segment_end.push_back(end += length);
    }

    sds_tiles view() const
    {
        sds_tiles to = {};
        to.n = static_cast<int32_t>(numbers.size());
        to.n_segments = static_cast<int32_t>(segment_end.size());
        to.shape = shape.data();
        to.number = numbers.data();
        to.place = place.data();
        to.segment_end = segment_end.data();
        return to;
    }
};

void add_candidate(sds_table_builder *builder, const nb::dict &from)
{
    const std::string path = bytes_of_path(from["path"]);
    const auto order = number<std::vector<int32_t>>(from, "order");
    const auto chunk = number<Numbers>(from, "chunk");
    const Numbers start = list_of_rank(from, "region_start", order.size());
    const Numbers extent = list_of_rank(from, "region_extent", order.size());
    sds_candidate candidate = {};
    candidate.replica_id = number<int64_t>(from, "replica_id");
    candidate.path = path.c_str();
    candidate.identity = identity_of(number<nb::dict>(from, "identity"));
    candidate.data_offset_bytes = number<int64_t>(from, "data_offset_bytes");
    candidate.metadata_crc32c = number<uint32_t>(from, "metadata_crc32c");
    candidate.storage = storage_of(from);
    candidate.chunks = chunking_of(from, chunk, order.size());
    candidate.rank = static_cast<int32_t>(order.size());
    candidate.order = order.data();
    candidate.region_start = start.data();
    candidate.region_extent = extent.data();
    std::optional<Tiles> tiles;
    if (!number<nb::object>(from, "segments").is_none())
        tiles.emplace(number<nb::dict>(from, "segments"), order.size());
    if (tiles) candidate.tiles = tiles->view();
    candidate.layout = layout_of(number<nb::dict>(from, "layout"));
    candidate.model = model_of(number<nb::dict>(from, "model"));
    candidate.shadow_permille = number<int32_t>(from, "shadow_permille");
    check(sds_table_builder_candidate(builder, &candidate), path.c_str());
}

void add_dataset(sds_table_builder *builder, const nb::dict &from)
{
    const std::string path = bytes_of_path(from["path"]);
    const auto extent = number<Numbers>(from, "extent");
    const auto chunk = number<Numbers>(from, "chunk");
    sds_table_dataset dataset = {};
    dataset.path = path.c_str();
    dataset.rank = static_cast<int32_t>(extent.size());
    dataset.extent = extent.data();
    dataset.element_bytes = number<int64_t>(from, "element_bytes");
    dataset.type_crc32c = number<uint32_t>(from, "type_crc32c");
    dataset.type_class = number<int32_t>(from, "type_class");
    dataset.storage = storage_of(from);
    dataset.chunks = chunking_of(from, chunk, extent.size());
    dataset.data_offset_bytes = number<int64_t>(from, "data_offset_bytes");
    dataset.layout = layout_of(number<nb::dict>(from, "layout"));
    dataset.model = model_of(number<nb::dict>(from, "model"));
    check(sds_table_builder_dataset(builder, &dataset), path.c_str());
    for (const nb::handle candidate : number<nb::list>(from, "candidates"))
        add_candidate(builder, nb::cast<nb::dict>(candidate));
}

nb::bytes encode_table(const nb::dict &table)
{
    const std::string source = bytes_of_path(table["source_path"]);
    const sds_identity identity = identity_of(number<nb::dict>(table, "source_identity"));
    sds_table_builder *made = nullptr;
    const auto instance = number<uint64_t>(table, "source_instance");
    check(sds_table_builder_new(source.c_str(), &identity, instance, &made), source.c_str());
    const std::unique_ptr<sds_table_builder, Release> builder(made);
    for (const nb::handle dataset : number<nb::list>(table, "datasets"))
        add_dataset(made, nb::cast<nb::dict>(dataset));
    void *bytes = nullptr;
    size_t n = 0;
    check(sds_table_builder_finish(made, &bytes, &n), "redirect table");
    const std::unique_ptr<void, Release> owner(bytes);
    return nb::bytes(bytes, n);
}

std::string table_name(nb::object path)
{
    char name[64];
    sds_table_name(bytes_of_path(path).c_str(), name);
    return name;
}

} // namespace

void bind_table(nb::module_ &module)
{
    module.def("encode_table", &encode_table, nb::arg("table"));
    module.def("decode_table", &decode_table, nb::arg("table"));
    module.def("table_name", &table_name, nb::arg("canonical_path"));
}
