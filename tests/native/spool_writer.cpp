// _spool_writer: the trace writer that the connector uses, for tests and benchmarks.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>
#include <vector>

#include "binding.h"
#include "sds/trace_format.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;
using Column = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

class SpoolWriter
{
  public:
    SpoolWriter(nb::object spool_dir, int64_t pid, int32_t rank, int32_t n_ranks, int64_t start_ns,
                const std::string &host, const std::string &executable, const std::string &job_id,
                const std::string &user, int64_t max_file_bytes, int64_t flush_interval_ns)
    {
        const std::string directory = bytes_of_path(spool_dir);
        const sds_trace_options options = {directory.c_str(), max_file_bytes, flush_interval_ns, 0,
                                           nullptr,           nullptr};
        const sds_trace_process process = {
            pid,         rank, n_ranks, start_ns, host.c_str(), executable.c_str(), job_id.c_str(),
            user.c_str()};
        writer_ = sds_trace_writer_new(&options, &process);
        if (writer_ == nullptr) check(SDS_ENOMEM, "spool writer");
    }
    ~SpoolWriter() { close(); }
    SpoolWriter(const SpoolWriter &) = delete;
    SpoolWriter &operator=(const SpoolWriter &) = delete;

    uint32_t add_dataset(nb::object file, nb::object path, const Axes &extent,
                         int64_t element_bytes, nb::object chunk, int32_t type_class,
                         int32_t storage, int32_t n_filters, int64_t data_offset_bytes,
                         const std::string &hdf5_version, const std::vector<int64_t> &identity)
    {
        require_open();
        const std::string file_bytes = bytes_of_path(file);
        const std::string path_bytes = bytes_of_path(path);
        const Axes chunks = chunk.is_none() ? Axes(extent.size(), 0) : nb::cast<Axes>(chunk);
        sds_trace_dataset dataset = {};
        if (extent.size() > SDS_MAX_RANK || chunks.size() != extent.size())
            refuse("extent and chunk must be as long as each other, and at most " +
                   std::to_string(SDS_MAX_RANK));
        if (identity.size() != 4) refuse("identity is (inode, size, mtime_ns, ctime_ns)");
        if (hdf5_version.size() >= sizeof dataset.hdf5_version)
            refuse("hdf5_version is too long: " + hdf5_version);
        dataset.file = file_bytes.c_str();
        dataset.path = path_bytes.c_str();
        dataset.identity = {static_cast<uint64_t>(identity[0]), identity[1], identity[2],
                            identity[3]};
        dataset.rank = static_cast<int32_t>(extent.size());
        std::memcpy(dataset.extent, extent.data(), extent.size() * sizeof(int64_t));
        std::memcpy(dataset.chunk, chunks.data(), chunks.size() * sizeof(int64_t));
        dataset.element_bytes = element_bytes;
        dataset.type_class = type_class;
        dataset.storage = storage;
        dataset.n_filters = n_filters;
        dataset.data_offset_bytes = data_offset_bytes;
        std::memcpy(dataset.hdf5_version, hdf5_version.c_str(), hdf5_version.size() + 1);
        const uint32_t id = sds_trace_add_dataset(writer_, &dataset);
        if (id == 0) check(SDS_ELIMIT, "add_dataset");
        return id;
    }

    void add_reads(uint32_t dataset, const Rows &start, const Axes &stride, const Axes &count,
                   const Axes &block, const Column &start_ns, const Column &elapsed_ns,
                   int32_t kind, int64_t n_elements, int64_t served_by, bool collective)
    {
        require_open();
        const size_t rank = start.shape(1);
        const size_t n = start.shape(0);
        if (rank > SDS_MAX_RANK || stride.size() != rank || count.size() != rank ||
            block.size() != rank || start_ns.shape(0) != n || elapsed_ns.shape(0) != n)
            refuse("add_reads: start of shape (n, rank) needs stride, count and block of length "
                   "rank, start_ns and elapsed_ns of length n");
        sds_trace_read read = {};
        read.dataset = dataset;
        read.kind = kind;
        read.slab.rank = static_cast<int32_t>(rank);
        read.n_elements = n_elements;
        read.served_by = served_by;
        read.collective = collective;
        std::memcpy(read.slab.stride, stride.data(), rank * sizeof(int64_t));
        std::memcpy(read.slab.count, count.data(), rank * sizeof(int64_t));
        std::memcpy(read.slab.block, block.data(), rank * sizeof(int64_t));
        const int64_t *starts = start.data();
        const int64_t *starts_ns = start_ns.data();
        const int64_t *elapsed = elapsed_ns.data();
        nb::gil_scoped_release released;
        for (size_t i = 0; i < n; i++) {
            std::memcpy(read.slab.start, starts + i * rank, rank * sizeof(int64_t));
            read.start_ns = starts_ns[i];
            read.elapsed_ns = elapsed[i];
            if (!sds_trace_add_read(writer_, &read))
                refuse("add_reads: dataset " + std::to_string(dataset) +
                       " was added before a fork; add it again");
        }
    }

    void flush()
    {
        require_open();
        nb::gil_scoped_release released;
        sds_trace_flush(writer_);
    }

    nb::object path() const
    {
        require_open();
        return path_of_bytes(sds_trace_writer_path(writer_));
    }

    void close()
    {
        sds_trace_writer_close(writer_);
        writer_ = nullptr;
    }

  private:
    void require_open() const
    {
        if (writer_ == nullptr) refuse("the spool writer is closed");
    }

    sds_trace_writer *writer_ = nullptr;
};

} // namespace

NB_MODULE(_spool_writer, module)
{
    nb::class_<SpoolWriter>(module, "SpoolWriter")
        .def(nb::init<nb::object, int64_t, int32_t, int32_t, int64_t, const std::string &,
                      const std::string &, const std::string &, const std::string &, int64_t,
                      int64_t>(),
             nb::arg("spool_dir"), nb::kw_only(), nb::arg("pid"), nb::arg("rank") = -1,
             nb::arg("n_ranks") = 1, nb::arg("start_ns"), nb::arg("host"), nb::arg("executable"),
             nb::arg("job_id") = "", nb::arg("user") = "", nb::arg("max_file_bytes") = 0,
             nb::arg("flush_interval_ns") = 0)
        .def("add_dataset", &SpoolWriter::add_dataset, nb::kw_only(), nb::arg("file"),
             nb::arg("path"), nb::arg("extent"), nb::arg("element_bytes"),
             nb::arg("chunk") = nb::none(), nb::arg("type_class") = 1,
             nb::arg("storage") = static_cast<int>(SDS_STORAGE_CONTIGUOUS),
             nb::arg("n_filters") = 0, nb::arg("data_offset_bytes") = -1,
             nb::arg("hdf5_version") = "", nb::arg("identity") = nb::make_tuple(0, 0, 0, 0))
        .def("add_reads", &SpoolWriter::add_reads, nb::arg("dataset"), nb::kw_only(),
             nb::arg("start"), nb::arg("stride"), nb::arg("count"), nb::arg("block"),
             nb::arg("start_ns"), nb::arg("elapsed_ns"),
             nb::arg("kind") = static_cast<int>(SDS_SELECT_HYPERSLAB), nb::arg("n_elements"),
             nb::arg("served_by") = 0, nb::arg("collective") = false)
        .def("flush", &SpoolWriter::flush)
        .def("close", &SpoolWriter::close)
        .def_prop_ro("path", &SpoolWriter::path);
}
