// Reads of one dataset that are served from replicas without a step in Python between the index and
// the values: as reads of the same shape were before, or, where the redirect table alone tells, as
// is decided here.
//
// After each of them it is looked whether all still holds of what they rest on: that shows in the
// times of change of a file whenever it happened, before the read or during it.
#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "binding.h"
#include "plan.h"
#include "read_file.h"
#include "sds/geometry.h"
#include "table_entry.h"
#include "views.h"

namespace nb = nanobind;

namespace
{

using Axes = std::vector<int64_t>;

// So many shapes are kept of a dataset; the latest are found first.
constexpr size_t max_shapes = 16;

// How often a decision may still be gone by; several may count on one.
struct Uses {
    int64_t n_left;
};

// What is selected on the axes of a dataset.
struct Selection {
    std::array<int64_t, SDS_MAX_RANK> start, count, stride;
    std::array<Py_ssize_t, SDS_MAX_RANK> shape; // of the result: integers drop their axes
    int n_shape = 0;
};

// Reads of one shape.
struct Shape {
    Axes count, stride;
    nb::object uses_holder;
    Uses *uses;
    StoredRead stored; // runs.first_offset does not count
    nb::object file_holder;
    const ReadFile *file = nullptr; // nullptr: Python knows how to read
    Stamp file_stamp;
};

// An integer, or a slice forwards that is not empty; of those that nearly all indices are made of.
bool select_axis(PyObject *part, int64_t length, size_t axis, Selection *out)
{
    out->stride[axis] = 1;
    if (PyLong_CheckExact(part)) {
        int overflow = 0;
        const long long index = PyLong_AsLongLongAndOverflow(part, &overflow);
        if (overflow != 0 || index < -length || index >= length) return false;
        out->start[axis] = index < 0 ? index + length : index;
        out->count[axis] = 1;
        return true;
    }
    if (!PySlice_Check(part)) return false;
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(part, &start, &stop, &step) != 0) {
        PyErr_Clear(); // who reads without this says what is wrong
        return false;
    }
    const Py_ssize_t count = PySlice_AdjustIndices(length, &start, &stop, step);
    if (step < 1 || count < 1) return false;
    out->start[axis] = start;
    out->count[axis] = count;
    if (count > 1) out->stride[axis] = step;
    out->shape[static_cast<size_t>(out->n_shape++)] = count;
    return true;
}

class RepeatedReads
{
  public:
    RepeatedReads(nb::handle source, const Stamp &source_stamp, nb::handle table,
                  const Stamp &table_stamp, nb::handle absent,
                  const std::vector<std::string> &variables, Axes extent, nb::object dtype,
                  nb::object entry, nb::object source_file)
        : source_(bytes_of_path(source)), source_stamp_(source_stamp), table_(bytes_of_path(table)),
          table_stamp_(table_stamp), absent_(bytes_of_path(absent)), extent_(std::move(extent)),
          dtype_(std::move(dtype)), empty_(nb::module_::import_("numpy").attr("empty")),
          entry_holder_(std::move(entry)),
          entry_(entry_holder_.is_none() ? nullptr : nb::cast<const TableEntry *>(entry_holder_)),
          source_file_holder_(std::move(source_file)),
          source_file_(source_file_holder_.is_none()
                           ? nullptr
                           : nb::cast<const ReadFile *>(source_file_holder_)),
          user_(geteuid())
    {
        if (extent_.size() > SDS_MAX_RANK)
            refuse("a dataset has at most " + std::to_string(SDS_MAX_RANK) + " axes");
        if (entry_ != nullptr && entry_->rank() != static_cast<int32_t>(extent_.size()))
            refuse("the table's dataset has " + std::to_string(entry_->rank()) +
                   " axes, this one " + std::to_string(extent_.size()));
        if (entry_ != nullptr && !entry_->is_plain()) entry_ = nullptr;
        for (const std::string &name : variables)
            environment_.emplace_back(name, value_of(name));
    }

    bool holds(const Axes &count, const Axes &stride) const
    {
        return std::any_of(shapes_.begin(), shapes_.end(), [&](const auto &each) {
            return each->count == count && each->stride == stride;
        });
    }

    void add(Axes count, Axes stride, nb::object uses, int64_t base_offset, Axes index_bytes,
             int64_t run_bytes, const Axes &run_counts, const Axes &run_strides_bytes,
             nb::object file, const Stamp &file_stamp)
    {
        if (count.size() != extent_.size() || stride.size() != extent_.size() ||
            index_bytes.size() != extent_.size())
            refuse("a shape has as many axes as the dataset: " + std::to_string(extent_.size()));
        auto shape = std::make_shared<Shape>();
        shape->count = std::move(count);
        shape->stride = std::move(stride);
        shape->uses = nb::cast<Uses *>(uses);
        shape->uses_holder = std::move(uses);
        shape->stored.base_offset = base_offset;
        shape->stored.index_bytes = std::move(index_bytes);
        shape->stored.runs = runs_of(0, run_bytes, run_counts, run_strides_bytes);
        shape->file = nb::cast<const ReadFile *>(file);
        shape->file_holder = std::move(file);
        shape->file_stamp = file_stamp;
        keep(std::move(shape));
    }

    // open_replica(i, offset, n): the file of the table's candidate i and its stamp, None where it
    // is not good; n bytes from an offset on are about to be read, 0 where they are no single run.
    // find_file(i): that file to look at what is in memory of it; None: nothing is looked at.
    nb::object read(nb::handle index, nb::object out, nb::handle open_replica, nb::handle find_file)
    {
        Selection selected;
        if ((shapes_.empty() && entry_ == nullptr) || !select(index, &selected) ||
            !is_environment_same())
            return nb::none();
        std::shared_ptr<Shape> shape = find(selected);
        if (shape == nullptr) shape = decide(selected, open_replica, find_file);
        if (shape == nullptr) return nb::none();
        if (shape->file == nullptr) {
            shape->uses->n_left--;
            return nb::none();
        }
        if (out.is_none()) out = make(selected);
        const View into(out.ptr());
        if (!into.has_shape(selected) || !nb::getattr(out, "dtype", nb::none()).equal(dtype_))
            return nb::none();
        shape->uses->n_left--;
        bool is_good;
        {
            nb::gil_scoped_release released;
            is_good = read_into(*shape, selected, into.bytes());
        }
        if (is_good) return out;
        shapes_.clear(); // until somebody has found out what is the matter
        return nb::none();
    }

  private:
    // A contiguous buffer that may be written; what has none leaves it empty.
    class View
    {
      public:
        explicit View(PyObject *object)
        {
            is_open_ = PyObject_GetBuffer(object, &view_, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) == 0;
            if (!is_open_) PyErr_Clear(); // who reads without this says what is wrong
        }
        ~View()
        {
            if (is_open_) PyBuffer_Release(&view_);
        }
        View(const View &) = delete;
        View &operator=(const View &) = delete;
        void *bytes() const { return view_.buf; }
        bool has_shape(const Selection &selected) const
        {
            return is_open_ && view_.ndim == selected.n_shape &&
                   std::equal(view_.shape, view_.shape + view_.ndim, selected.shape.begin());
        }

      private:
        Py_buffer view_;
        bool is_open_;
    };

    static std::optional<std::string> value_of(const std::string &name)
    {
        const char *value = std::getenv(name.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    }

    bool is_environment_same() const
    {
        for (const auto &[name, value] : environment_) {
            const char *now = std::getenv(name.c_str());
            if (now == nullptr ? value.has_value() : !value.has_value() || *value != now)
                return false;
        }
        return geteuid() == user_;
    }

    // Of several elements, with an index for every axis.
    bool select(nb::handle index, Selection *out) const
    {
        PyObject *const given = index.ptr();
        const bool is_tuple = PyTuple_CheckExact(given);
        if ((is_tuple ? static_cast<size_t>(PyTuple_GET_SIZE(given)) : 1) != extent_.size())
            return false;
        for (size_t axis = 0; axis < extent_.size(); axis++) {
            PyObject *part = given;
            if (is_tuple) part = PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(axis));
            if (!select_axis(part, extent_[axis], axis, out)) return false;
        }
        return out->n_shape > 0;
    }

    std::shared_ptr<Shape> find(const Selection &selected)
    {
        for (auto each = shapes_.begin(); each != shapes_.end(); ++each) {
            const Shape &shape = **each;
            if (!std::equal(shape.count.begin(), shape.count.end(), selected.count.begin()) ||
                !std::equal(shape.stride.begin(), shape.stride.end(), selected.stride.begin()))
                continue;
            if (shape.uses->n_left > 0) return *each;
            shapes_.erase(each);
            break;
        }
        return nullptr;
    }

    void keep(std::shared_ptr<Shape> shape)
    {
        if (shapes_.size() >= max_shapes) shapes_.pop_back();
        shapes_.insert(shapes_.begin(), std::move(shape));
    }

    // How reads of a shape that is not known are done; nullptr where Python has to find that out.
    std::shared_ptr<Shape> decide(const Selection &selected, nb::handle open_replica,
                                  nb::handle find_file)
    {
        if (entry_ == nullptr) return nullptr;
        try {
            return decide_by(*entry_, selected, open_replica, find_file);
        } catch (nb::python_error &error) {
            if (!error.matches(PyExc_Exception)) throw; // an interrupt, which nobody else sees
            return nullptr;                             // who reads without this says what is wrong
        }
    }

    std::shared_ptr<Shape> decide_by(const TableEntry &entry, const Selection &selected,
                                     nb::handle open_replica, nb::handle find_file)
    {
        const size_t rank = extent_.size();
        sds_hyperslab slab = {};
        slab.rank = static_cast<int32_t>(rank);
        std::copy_n(selected.start.begin(), rank, slab.start);
        std::copy_n(selected.stride.begin(), rank, slab.stride);
        std::copy_n(selected.count.begin(), rank, slab.count);
        std::fill_n(slab.block, rank, 1);
        auto shape = std::make_shared<Shape>();
        shape->count.assign(slab.count, slab.count + rank);
        shape->stride.assign(slab.stride, slab.stride + rank);
        const auto [best, n_uses] = entry.choose(slab, source_file_, find_file);
        shape->uses_holder = nb::cast(Uses{n_uses});
        shape->uses = nb::cast<Uses *>(shape->uses_holder);
        if (best != TableEntry::original) shape->stored = entry.stored_read(best, slab);
        if (shape->stored.keeps_order) {
            const sds_runs &runs = shape->stored.runs;
            const nb::object opened =
                open_replica(best, first_offset_of(shape->stored, selected),
                             runs.n_levels == 0 ? runs.run_bytes : int64_t{0});
            if (opened.is_none()) return nullptr;
            const auto file = nb::cast<nb::tuple>(opened);
            shape->file_holder = file[0];
            shape->file = nb::cast<const ReadFile *>(shape->file_holder);
            shape->file_stamp = nb::cast<Stamp>(file[1]);
        }
        keep(shape);
        return shape;
    }

    nb::object make(const Selection &selected) const
    {
        const nb::object shape = nb::steal(PyTuple_New(selected.n_shape));
        if (!shape.is_valid()) throw nb::python_error();
        for (int k = 0; k < selected.n_shape; k++) {
            PyObject *length = PyLong_FromSsize_t(selected.shape[static_cast<size_t>(k)]);
            if (length == nullptr) throw nb::python_error();
            PyTuple_SET_ITEM(shape.ptr(), k, length);
        }
        return empty_(shape, dtype_);
    }

    int64_t first_offset_of(const StoredRead &stored, const Selection &selected) const
    {
        int64_t offset = stored.base_offset;
        for (size_t axis = 0; axis < extent_.size(); axis++)
            offset += selected.start[axis] * stored.index_bytes[axis];
        return offset;
    }

    bool read_into(const Shape &shape, const Selection &selected, void *bytes) const
    {
        struct stat found;
        sds_runs runs = shape.stored.runs;
        runs.first_offset = first_offset_of(shape.stored, selected);
        return sds_read_runs(shape.file->file(), &runs, nullptr, bytes, nullptr) == SDS_OK &&
               fstat(shape.file->fileno(), &found) == 0 && stamp_of(found) == shape.file_stamp &&
               stat(table_.c_str(), &found) == 0 && stamp_of(found) == table_stamp_ &&
               access(absent_.c_str(), F_OK) != 0 && stat(source_.c_str(), &found) == 0 &&
               stamp_of(found) == source_stamp_;
    }

    std::string source_;
    Stamp source_stamp_;
    std::string table_;
    Stamp table_stamp_;
    std::string absent_;
    std::vector<std::pair<std::string, std::optional<std::string>>> environment_;
    Axes extent_;
    nb::object dtype_;
    nb::object empty_;
    nb::object entry_holder_;
    const TableEntry *entry_; // nullptr: only shapes that were added are known
    nb::object source_file_holder_;
    const ReadFile *source_file_; // nullptr: what the page cache holds of it is not looked at
    uid_t user_;
    std::vector<std::shared_ptr<Shape>> shapes_;
};

} // namespace

void bind_repeated_reads(nb::module_ &module)
{
    nb::class_<Uses>(module, "Uses")
        .def(nb::init<int64_t>(), nb::arg("n_left"))
        .def_rw("n_left", &Uses::n_left);
    nb::class_<RepeatedReads>(module, "RepeatedReads")
        .def(nb::init<nb::handle, const Stamp &, nb::handle, const Stamp &, nb::handle,
                      const std::vector<std::string> &, Axes, nb::object, nb::object, nb::object>(),
             nb::arg("source"), nb::arg("source_stamp"), nb::arg("table"), nb::arg("table_stamp"),
             nb::arg("absent"), nb::arg("variables"), nb::arg("extent"), nb::arg("dtype"),
             nb::arg("entry").none(), nb::arg("source_file").none())
        .def("holds", &RepeatedReads::holds, nb::arg("count"), nb::arg("stride"))
        .def("add", &RepeatedReads::add, nb::arg("count"), nb::arg("stride"), nb::arg("uses"),
             nb::arg("base_offset"), nb::arg("index_bytes"), nb::arg("run_bytes"),
             nb::arg("run_counts"), nb::arg("run_strides_bytes"), nb::arg("file"),
             nb::arg("file_stamp"))
        .def("read", &RepeatedReads::read, nb::arg("index"), nb::arg("out").none(),
             nb::arg("open_replica"), nb::arg("find_file") = nb::none());
}
