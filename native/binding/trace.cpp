#include <nanobind/ndarray.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "binding.h"
#include "sds/trace_format.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

struct Close {
    void operator()(sds_trace_reader *reader) const { sds_trace_reader_close(reader); }
};

// A NumPy array that owns its values.
template <typename T>
nb::object array_of(std::vector<T> values, std::initializer_list<size_t> shape)
{
    auto *kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape, owner));
}

// Names of the columns with one value per record, in the order in which Records adds them.
constexpr const char *scalar_columns[] = {
    "dataset",    "kind",           "collective",    "served_by", "thread",
    "rank",       "n_elements",     "n_reads",       "start_ns",  "last_start_ns",
    "elapsed_ns", "elapsed_min_ns", "elapsed_max_ns"};
constexpr size_t n_scalar_columns = sizeof scalar_columns / sizeof *scalar_columns;
constexpr size_t rank_column = 5;

// Records as columns. Values per axis are kept as short as each record's rank, and padded with
// zeros to the greatest one at the end.
class Records
{
  public:
    size_t size() const { return scalars_[0].size(); }

    void add(const sds_trace_record &record)
    {
        const sds_trace_read &read = record.first;
        const int64_t values[n_scalar_columns] = {read.dataset,          read.kind,
                                                  read.collective,       read.served_by,
                                                  record.thread,         read.slab.rank,
                                                  read.n_elements,       record.n_reads,
                                                  read.start_ns,         record.last_start_ns,
                                                  record.elapsed_sum_ns, record.elapsed_min_ns,
                                                  record.elapsed_max_ns};
        for (size_t i = 0; i < n_scalar_columns; i++)
            scalars_[i].push_back(values[i]);
        append(start_, read.slab.start, read.slab.rank);
        append(stride_, read.slab.stride, read.slab.rank);
        append(count_, read.slab.count, read.slab.rank);
        append(block_, read.slab.block, read.slab.rank);
        for (int32_t loop = 0; loop < SDS_TRACE_MAX_LOOPS; loop++) {
            repeat_.push_back(loop < record.n_loops ? record.repeat[loop] : 1);
            append(advance_, record.advance[loop], read.slab.rank);
        }
        latency_.insert(latency_.end(), record.latency, record.latency + SDS_TRACE_LATENCY_BUCKETS);
    }

    // Leaves this empty.
    nb::dict columns()
    {
        const size_t n = size();
        size_t rank = 0;
        for (const int64_t of_one : scalars_[rank_column])
            if (static_cast<size_t>(of_one) > rank) rank = static_cast<size_t>(of_one);
        nb::dict to;
        to["start"] = array_of(padded(start_, 1, rank), {n, rank});
        to["stride"] = array_of(padded(stride_, 1, rank), {n, rank});
        to["count"] = array_of(padded(count_, 1, rank), {n, rank});
        to["block"] = array_of(padded(block_, 1, rank), {n, rank});
        to["advance"] =
            array_of(padded(advance_, SDS_TRACE_MAX_LOOPS, rank), {n, SDS_TRACE_MAX_LOOPS, rank});
        to["repeat"] = array_of(std::move(repeat_), {n, SDS_TRACE_MAX_LOOPS});
        to["latency"] = array_of(std::move(latency_), {n, SDS_TRACE_LATENCY_BUCKETS});
        for (size_t i = 0; i < n_scalar_columns; i++)
            to[scalar_columns[i]] = array_of(std::move(scalars_[i]), {n});
        return to;
    }

  private:
    static void append(std::vector<int64_t> &to, const int64_t values[], int32_t n)
    {
        to.insert(to.end(), values, values + n);
    }

    // values: rows of as many values as the record has axes, rows_per_record of them each.
    std::vector<int64_t> padded(const std::vector<int64_t> &values, size_t rows_per_record,
                                size_t rank) const
    {
        std::vector<int64_t> to(size() * rows_per_record * rank, 0);
        size_t from = 0;
        for (size_t i = 0; i < size(); i++) {
            const auto of_one = static_cast<size_t>(scalars_[rank_column][i]);
            for (size_t row = 0; row < rows_per_record; row++, from += of_one)
                for (size_t axis = 0; axis < of_one; axis++)
                    to[(i * rows_per_record + row) * rank + axis] = values[from + axis];
        }
        return to;
    }

    std::vector<int64_t> scalars_[n_scalar_columns];
    std::vector<int64_t> start_, stride_, count_, block_, repeat_, advance_;
    std::vector<uint32_t> latency_;
};

nb::tuple tuple_of(const int64_t values[], int32_t n)
{
    nb::list list;
    for (int32_t i = 0; i < n; i++)
        list.append(values[i]);
    return nb::tuple(list);
}

nb::dict dict_of(const sds_trace_process &from)
{
    nb::dict to;
    to["pid"] = from.pid;
    to["rank"] = from.rank;
    to["n_ranks"] = from.n_ranks;
    to["start_ns"] = from.start_ns;
    to["host"] = path_of_bytes(from.host);
    to["executable"] = path_of_bytes(from.executable);
    to["job_id"] = path_of_bytes(from.job_id);
    to["user"] = path_of_bytes(from.user);
    return to;
}

nb::dict dict_of(uint32_t id, const sds_trace_dataset &from)
{
    nb::dict to;
    to["id"] = id;
    to["file"] = path_of_bytes(from.file);
    to["path"] = path_of_bytes(from.path);
    to["identity"] = nb::make_tuple(from.identity.inode, from.identity.size_bytes,
                                    from.identity.mtime_ns, from.identity.ctime_ns);
    to["extent"] = tuple_of(from.extent, from.rank);
    to["chunk"] = from.storage == SDS_STORAGE_CHUNKED ? nb::object(tuple_of(from.chunk, from.rank))
                                                      : nb::none();
    to["element_bytes"] = from.element_bytes;
    to["type_class"] = from.type_class;
    to["storage"] = from.storage;
    to["n_filters"] = from.n_filters;
    to["data_offset_bytes"] = from.data_offset_bytes;
    to["hdf5_version"] = path_of_bytes(from.hdf5_version);
    return to;
}

nb::dict read_spool(nb::object path, int64_t start_offset, size_t max_records)
{
    const std::string name = bytes_of_path(path);
    sds_trace_reader *opened = nullptr;
    check(sds_trace_reader_open(name.c_str(), start_offset, &opened), name.c_str());
    const std::unique_ptr<sds_trace_reader, Close> reader(opened);
    nb::list datasets;
    Records records;
    uint32_t id = 0;
    sds_trace_dataset dataset;
    sds_trace_record record;
    bool is_enough = false;
    for (;;) {
        sds_trace_item item;
        {
            nb::gil_scoped_release released;
            while ((item = sds_trace_reader_next(opened, &id, &dataset, &record)) ==
                   SDS_TRACE_RECORD) {
                records.add(record);
                is_enough = max_records > 0 && records.size() >= max_records &&
                            sds_trace_reader_is_between_blocks(opened);
                if (is_enough) break;
            }
        }
        if (is_enough || item == SDS_TRACE_END) break;
        datasets.append(dict_of(id, dataset));
    }
    nb::dict to;
    to["version"] = SDS_TRACE_VERSION;
    to["process"] = dict_of(*sds_trace_reader_process(opened));
    to["datasets"] = datasets;
    to["records"] = records.columns();
    to["offset"] = sds_trace_reader_offset(opened);
    to["is_complete"] = !is_enough;
    to["torn_bytes"] = is_enough ? 0 : sds_trace_reader_torn_bytes(opened);
    to["skipped_bytes"] = sds_trace_reader_skipped_bytes(opened);
    to["dropped_reads"] = sds_trace_reader_dropped_reads(opened);
    return to;
}

} // namespace

void bind_trace(nb::module_ &module)
{
    module.def("read_spool", &read_spool, nb::arg("path"), nb::arg("start_offset") = 0,
               nb::arg("max_records") = 0);
    module.attr("TRACE_SUFFIX") = SDS_TRACE_SUFFIX;
    module.attr("TRACE_MAX_FILE_BYTES") = SDS_TRACE_MAX_FILE_BYTES;
}
