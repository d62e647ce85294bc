#include "read_many.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "error_stack.h"
#include "object.h"
#include "open_dataset.h"
#include "open_file.h"
#include "original_file.h"
#include "read_below.h"
#include "read_filter.h"
#include "redirect.h"
#include "tracing.h"
#include "transfer_word.h"
#include "under_objects.h"

namespace sds::vol
{
namespace
{

Selection selection_in(const Object &object, const OpenDataset &dataset, hid_t file_space)
{
    return selection_of(*object.host, file_space, dataset.description.rank,
                        dataset.description.extent);
}

// Memory that a read may write to.
struct Range {
    const char *begin;
    const char *end;
};

int compare(const void *a, const void *b)
{
    const char *first = static_cast<const Range *>(a)->begin;
    const char *second = static_cast<const Range *>(b)->begin;
    return first < second ? -1 : first > second;
}

// Elements of the array in memory into which the dataset is read; negative where it is not known.
int64_t elements_in_memory(const Object &object, const OpenDataset &dataset, hid_t file_space,
                           hid_t memory_space)
{
    if (memory_space == space_block) return selection_in(object, dataset, file_space).n_elements;
    int64_t n = 1;
    const hid_t space = memory_space == H5S_ALL ? file_space : memory_space;
    if (space == H5S_ALL) {
        for (int32_t axis = 0; axis < dataset.description.rank; axis++)
            n *= dataset.description.extent[axis];
        return n;
    }
    if (space <= last_special_space) return -1;
    hsize_t extent[SDS_MAX_RANK];
    const int rank = object.hdf5().H5Sget_simple_extent_dims(space, extent, nullptr);
    for (int axis = 0; axis < rank; axis++)
        if (__builtin_mul_overflow(n, extent[axis], &n)) return -1;
    return rank < 0 ? -1 : n;
}

bool find_range(const ManyReads &reads, size_t i, const OpenDataset &dataset, Range &out)
{
    const Handle object_handle(reads.datasets[i]);
    const Object &object = *object_handle;
    const int64_t n =
        elements_in_memory(object, dataset, reads.file_spaces[i], reads.memory_spaces[i]);
    const size_t bytes = object.hdf5().H5Tget_size(reads.memory_types[i]);
    size_t total = 0;
    if (n < 0 || bytes == 0 || __builtin_mul_overflow(static_cast<size_t>(n), bytes, &total))
        return false;
    out.begin = static_cast<const char *>(reads.buffers[i]);
    out.end = out.begin + total;
    return true;
}

// Whether each read has memory of its own, so that it does not matter which comes first.
bool are_apart(Range ranges[], size_t n)
{
    qsort(ranges, n, sizeof(Range), compare);
    for (size_t i = 1; i < n; i++)
        if (ranges[i].begin < ranges[i - 1].end) return false;
    return true;
}

int compare_tokens(const void *a, const void *b)
{
    return memcmp(static_cast<const DatasetIdentity *>(a)->token,
                  static_cast<const DatasetIdentity *>(b)->token, sizeof DatasetIdentity::token);
}

// Whether a dataset in chunks may come twice, by two names even. All lie in one file.
bool may_chunks_come_twice(const ManyReads &reads)
{
    auto *found = static_cast<DatasetIdentity *>(malloc(reads.n * sizeof(DatasetIdentity)));
    bool may = !found;
    size_t n = 0;
    for (size_t i = 0; !may && i < reads.n; i++) {
        const DatasetHandle object(reads.datasets[i]);
        const OpenDataset *dataset = dataset_of(*object);
        if (!dataset)
            may = true;
        else if (dataset->description.storage == SDS_STORAGE_CHUNKED)
            may = !read_identity(*object, found[n++]);
    }
    if (!may) qsort(found, n, sizeof(DatasetIdentity), compare_tokens);
    for (size_t i = 1; !may && i < n; i++)
        may = compare_tokens(&found[i - 1], &found[i]) == 0;
    free(found);
    return may;
}

// HDF5 refuses a call as a whole that is on several files, or that reads a chunk for two of its
// parts: then no part of it is to succeed.
bool may_be_split(const ManyReads &reads)
{
    const Host &host = *Handle(reads.datasets[0])->host;
    if ((!any_tables() && !any_originals()) || is_collective(host, reads.dxpl)) return false;
    SilenceKeeper silence(host); // what is wrong with the arguments is HDF5's to say
    ErrorStackKeeper keep(host);
    auto *ranges = static_cast<Range *>(malloc(reads.n * sizeof(Range)));
    if (!ranges) return false;
    const OpenFile *file = nullptr;
    bool redirects = false, from_chunks = false, may = true;
    for (size_t i = 0; may && i < reads.n; i++) {
        const DatasetHandle object(reads.datasets[i]);
        const OpenDataset *dataset = dataset_of(*object);
        may = dataset && dataset->file && is_selection(host, reads.file_spaces[i]) &&
              (i == 0 || dataset->file == file) && find_range(reads, i, *dataset, ranges[i]);
        if (!may) break;
        file = dataset->file;
        redirects = redirects || dataset->redirection;
        from_chunks = from_chunks ||
                      (dataset->redirection && dataset->description.storage == SDS_STORAGE_CHUNKED);
    }
    may = may && redirects && are_apart(ranges, reads.n);
    free(ranges);
    return may && !(from_chunks && may_chunks_come_twice(reads));
}

// Arguments of a call on some of the datasets, the objects those below.
class Remainder
{
  public:
    Remainder(const Host &host, size_t most)
        : host_(host), parts_(malloc(most * (2 * sizeof(void *) + 4 * sizeof(hid_t)))), most_(most),
          n_(0), n_empty_(0)
    {
    }
    ~Remainder()
    {
        while (n_empty_ > 0)
            host_.hdf5.H5Sclose(ids(3)[--n_empty_]);
        free(parts_);
    }
    Remainder(const Remainder &) = delete;
    Remainder &operator=(const Remainder &) = delete;

    bool ok() const { return parts_; }
    bool is_empty() const { return n_ == 0; }
    void add(const ManyReads &reads, size_t i)
    {
        objects()[n_] = under(reads.datasets[i]);
        buffers()[n_] = reads.buffers[i];
        ids(0)[n_] = reads.memory_types[i];
        ids(1)[n_] = reads.memory_spaces[i];
        ids(2)[n_] = reads.file_spaces[i];
        n_++;
    }
    // Have HDF5 read nothing of a dataset. False where that cannot be had.
    bool add_nothing(const ManyReads &reads, size_t i, const StoredDataset &stored)
    {
        const hid_t space = select_nothing(host_, stored);
        if (space < 0) return false;
        add(reads, i);
        ids(1)[n_ - 1] = ids(2)[n_ - 1] = ids(3)[n_empty_++] = space;
        return true;
    }
    herr_t read(const Object &first, hid_t dxpl)
    {
        return read_below(first, n_, objects(), ids(0), ids(1), ids(2), dxpl, buffers());
    }

  private:
    void **objects() { return static_cast<void **>(parts_); }
    void **buffers() { return objects() + most_; }
    hid_t *ids(size_t which)
    {
        return reinterpret_cast<hid_t *>(buffers() + most_) + which * most_;
    }

    const Host &host_;
    void *parts_;
    const size_t most_;
    size_t n_;
    size_t n_empty_;
};

herr_t read_all(const ManyReads &reads)
{
    const Handle first_handle(reads.datasets[0]);
    const Object &first = *first_handle;
    UnderObjects below(reads.n, reads.datasets);
    if (!below.ok()) return -1;
    return read_below(first, reads.n, below.array(), reads.memory_types, reads.memory_spaces,
                      reads.file_spaces, reads.dxpl, reads.buffers);
}

// served_by: of each dataset, as it is traced.
herr_t read_parts(const ManyReads &reads, Remainder &rest, int64_t served_by[])
{
    for (size_t i = 0; i < reads.n; i++) {
        const DatasetHandle object_handle(reads.datasets[i]);
        Object &object = *object_handle;
        OpenDataset *dataset = dataset_of(object);
        int64_t server = 0;
        Deal deal = {};
        if (dataset && dataset->redirection) {
            see_read(object, *dataset, reads.file_spaces[i]);
            server =
                serve_read(object, *dataset, selection_in(object, *dataset, reads.file_spaces[i]),
                           {reads.memory_types[i], reads.memory_spaces[i], reads.file_spaces[i],
                            reads.dxpl, reads.buffers[i]},
                           deal);
        }
        if (server != 0 && leaves_word(*object.host, reads.dxpl) &&
            !rest.add_nothing(reads, i, dataset->description))
            server = 0;
        if (server == 0) rest.add(reads, i);
        served_by[i] = sds_trace_served_by(server, deal.left_by);
    }
    const Handle first_handle(reads.datasets[0]);
    const Object &first = *first_handle;
    return rest.is_empty() ? 0 : rest.read(first, reads.dxpl);
}

void trace_all(const ManyReads &reads, const sds_trace_span &span, const int64_t served_by[])
{
    for (size_t i = 0; i < reads.n; i++) {
        const DatasetHandle object_handle(reads.datasets[i]);
        Object &object = *object_handle;
        OpenDataset *dataset = dataset_of(object);
        if (!dataset) continue;
        trace_read(*dataset, selection_in(object, *dataset, reads.file_spaces[i]), span,
                   served_by ? served_by[i] : 0, is_collective(*object.host, reads.dxpl));
    }
}

} // namespace

herr_t read_many(const ManyReads &reads, bool traced)
{
    sds_trace_span span = {};
    if (traced) span.begin_ns = monotonic_ns();
    Remainder rest(*Handle(reads.datasets[0])->host, reads.n);
    auto *served_by = static_cast<int64_t *>(calloc(reads.n, sizeof(int64_t)));
    const bool splits = served_by && rest.ok() && may_be_split(reads);
    const herr_t result = splits ? read_parts(reads, rest, served_by) : read_all(reads);
    if (result >= 0 && traced) {
        span.end_ns = monotonic_ns();
        trace_all(reads, span, served_by);
    }
    free(served_by);
    return result;
}

} // namespace sds::vol
