// Datasets.
#include "branch.h"
#include "clock.h"
#include "known_datasets.h"
#include "object.h"
#include "open_dataset.h"
#include "open_file.h"
#include "pass_on.h"
#include "read_below.h"
#include "read_filter.h"
#include "read_many.h"
#include "redirect.h"
#include "tracing.h"
#include "transfer_word.h"
#include "under_objects.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

void *create(void *object, const H5VL_loc_params_t *location, const char *name, hid_t lcpl,
             hid_t type, hid_t space, hid_t dcpl, hid_t dapl, hid_t dxpl, void **)
{
    const Handle self_handle(object);
    Object &self = *self_handle;
    before_write(self, location->obj_type);
    return wrap_beside(self, pass_on_at(self, location, self.below->dataset_cls.create,
                                        self.hdf5().H5VLdataset_create, name, lcpl, type, space,
                                        dcpl, dapl, dxpl, nullptr));
}

void *open(void *object, const H5VL_loc_params_t *location, const char *name, hid_t dapl,
           hid_t dxpl, void **)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return wrap_beside(self, pass_on_at(self, location, self.below->dataset_cls.open,
                                        self.hdf5().H5VLdataset_open, name, dapl, dxpl, nullptr));
}

// The arguments of a call on one dataset, as HDF5 passes them: arrays of one each.
struct OneRead {
    hid_t *memory_type;
    hid_t *memory_space;
    hid_t *file_space;
    hid_t dxpl;
    void **buffer;
};

inline herr_t read_original(Object &object, const OneRead &read)
{
    return read_below(object, 1, &object.under, read.memory_type, read.memory_space,
                      read.file_space, read.dxpl, read.buffer);
}

// Read one dataset, by whatever serves it.
__attribute__((noinline)) herr_t read_redirected(Object &object, OpenDataset &dataset,
                                                 const OneRead &read, bool traced)
{
    const Host &host = *object.host;
    const StoredDataset &stored = dataset.description;
    const hid_t file_space = *read.file_space;
    sds_trace_span span = {};
    if (traced) span.begin_ns = monotonic_ns();
    if (!is_selection(host, file_space)) return read_original(object, read);
    const ReadRequest request = {*read.memory_type, *read.memory_space, file_space, read.dxpl,
                                 *read.buffer};
    Selection selection;
    select(host, file_space, stored.rank, stored.extent, selection);
    Deal deal = {};
    int64_t served_by = serve_read(object, dataset, selection, request, deal);
    if (served_by != 0 && !leave_word(object, stored, request)) served_by = 0;
    const herr_t result = served_by == 0 ? read_original(object, read) : 0;
    if (result < 0 || !traced) return result;
    span.end_ns = monotonic_ns();
    trace_read(dataset, selection, span, sds_trace_served_by(served_by, deal.left_by),
               is_collective(host, read.dxpl));
    return result;
}

// Read one dataset. What HDF5 alone reads untraced, the filter has passed already.
__attribute__((noinline)) herr_t read_one(Object &object, const OneRead &read, bool traced)
{
    const hid_t file_space = *read.file_space;
    OpenDataset *dataset = __atomic_load_n(&object.dataset, __ATOMIC_ACQUIRE);
    if (!traced && gains_nothing(object, dataset, file_space)) return read_original(object, read);
    const bool is_chosen = dataset && !traced;
    if (!dataset) dataset = make_dataset(object);
    if (!dataset) return read_original(object, read);
    const bool in_trace = traced && __atomic_load_n(&dataset->trace_id, __ATOMIC_ACQUIRE) != 0;
    if (is_chosen || !((traced && is_left_to_hdf5(object, dataset, in_trace)) ||
                       gains_nothing(object, dataset, file_space)))
        return read_redirected(object, *dataset, read, traced);
    if (!traced) return read_original(object, read);
    sds_trace_span span = {monotonic_ns(), 0};
    const herr_t result = read_original(object, read);
    if (result < 0) return result;
    span.end_ns = monotonic_ns();
    trace_done(object, *dataset, file_space, read.dxpl, span);
    return result;
}

// Whether something else may read a bare dataset, all of which lie in files of the native
// connector.
bool may_be_served(const Host &host, hid_t file_space)
{
    return any_tables() || (any_originals() && !gains_nothing(host, file_space, 0));
}

herr_t read_original_of_bare(const Host &host, void *dataset, const OneRead &read)
{
    void *below = under_bare(dataset);
    const auto direct = host.class_of(host.native).dataset_cls.read;
    return mostly(direct) ? direct(1, &below, read.memory_type, read.memory_space, read.file_space,
                                   read.dxpl, read.buffer, nullptr)
                          : host.hdf5.H5VLdataset_read(1, &below, host.native, read.memory_type,
                                                       read.memory_space, read.file_space,
                                                       read.dxpl, read.buffer, nullptr);
}

// Read a bare dataset of which no more need be known than is kept of all. False where more is, and
// nothing is done.
__attribute__((noinline)) bool read_bare(void *dataset, const OneRead &read, herr_t &result)
{
    const Host &host = host_of_bare(dataset);
    if (seldom(may_be_served(host, *read.file_space)) &&
        (any_tables() || !is_first_and_small(*Handle(dataset), *read.file_space)))
        return false;
    result = read_original_of_bare(host, dataset, read);
    return true;
}

__attribute__((noinline)) bool read_bare_traced(void *dataset, const OneRead &read, herr_t &result)
{
    const Host &host = host_of_bare(dataset);
    const hid_t file_space = *read.file_space;
    KnownDataset known;
    bool is_known = false;
    if (seldom(may_be_served(host, file_space))) {
        is_known = find_known(dataset, known);
        if (!is_known || (known.by_engine_too &&
                          !gains_nothing(host, file_space, int64_t{1} << known.window_log2)))
            return false;
    } else {
        expect_known(dataset);
    }
    sds_trace_span span = {monotonic_ns(), 0};
    result = read_original_of_bare(host, dataset, read);
    if (result < 0) return true;
    span.end_ns = monotonic_ns();
    if (mostly(is_known || find_known(dataset, known)) &&
        mostly(trace_known(host, known, file_space, read.dxpl, span)))
        return true;
    const DatasetHandle described(dataset);
    OpenDataset *state = dataset_of(*described);
    if (state) trace_done(*described, *state, file_space, read.dxpl, span);
    return true;
}

__attribute__((noinline)) herr_t read_one_bare(void *dataset, const OneRead &read, bool traced)
{
    herr_t result = 0;
    if (traced ? read_bare_traced(dataset, read, result) : read_bare(dataset, read, result))
        return result;
    const DatasetHandle described(dataset);
    return read_one(*described, read, traced);
}

// All that the two below leave to it. Their arguments are those of HDF5's callback, so that each
// goes on in the other by a jump.
SDS_COLD herr_t read_otherwise(size_t n, void *datasets[], hid_t memory_types[],
                               hid_t memory_spaces[], hid_t file_spaces[], hid_t dxpl,
                               void *buffers[], void **)
{
    const bool traced = is_tracing();
    if (n > 1)
        return read_many({n, datasets, memory_types, memory_spaces, file_spaces, dxpl, buffers},
                         traced);
    const OneRead one = {memory_types, memory_spaces, file_spaces, dxpl, buffers};
    if (is_bare(datasets[0])) return read_one_bare(datasets[0], one, traced);
    auto &object = *static_cast<Object *>(datasets[0]);
    return read_one(object, one, traced);
}

SDS_HOT __attribute__((noinline)) herr_t read_traced(size_t n, void *datasets[],
                                                     hid_t memory_types[], hid_t memory_spaces[],
                                                     hid_t file_spaces[], hid_t dxpl,
                                                     void *buffers[], void **request)
{
    Object &object = *static_cast<Object *>(datasets[0]);
    OpenDataset *dataset = __atomic_load_n(&object.dataset, __ATOMIC_ACQUIRE);
    // Other threads may change them meanwhile: each is looked at once.
    const uint32_t id = dataset ? __atomic_load_n(&dataset->trace_id, __ATOMIC_ACQUIRE) : 0;
    const int8_t rank = id != 0 ? dataset->box_rank : int8_t{-1};
    if (seldom(rank < 0) || seldom(!is_left_to_hdf5(object, dataset, true)))
        return read_otherwise(n, datasets, memory_types, memory_spaces, file_spaces, dxpl, buffers,
                              request);
    sds_trace_span span = {monotonic_ns(), 0};
    const herr_t result =
        read_original(object, {memory_types, memory_spaces, file_spaces, dxpl, buffers});
    if (seldom(result < 0)) return result;
    span.end_ns = monotonic_ns();
    const Host &host = *object.host;
    const int64_t *extent = dataset->description.extent;
    const hid_t file_space = *file_spaces;
    const bool is_whole = file_space == H5S_ALL;
    int64_t first[SDS_MAX_RANK], last[SDS_MAX_RANK];
    const int64_t n_elements = is_whole ? see_whole(rank, extent, first, last)
                                        : see_box(host, file_space, rank, extent, first, last);
    if (seldom(n_elements >= min_elements)) look_behind(object, *dataset, n_elements, first, last);
    if (seldom(n_elements == 0) ||
        seldom(!trace_box({id, rank, is_whole, is_collective(host, dxpl), 0, first, last}, span)))
        trace_done(object, *dataset, file_space, dxpl, span);
    return result;
}

SDS_HOT herr_t read(size_t n, void *datasets[], hid_t memory_types[], hid_t memory_spaces[],
                    hid_t file_spaces[], hid_t dxpl, void *buffers[], void **request)
{
    if (mostly(n == 1) && mostly(!is_bare(datasets[0])) && mostly(is_trace_open())) {
        Object &object = *static_cast<Object *>(datasets[0]);
        if (tracer.writer)
            return read_traced(n, datasets, memory_types, memory_spaces, file_spaces, dxpl, buffers,
                               request);
        const OpenDataset *dataset = __atomic_load_n(&object.dataset, __ATOMIC_ACQUIRE);
        if (mostly(is_left_to_hdf5(object, dataset, false)))
            return read_original(object, {memory_types, memory_spaces, file_spaces, dxpl, buffers});
    }
    return read_otherwise(n, datasets, memory_types, memory_spaces, file_spaces, dxpl, buffers,
                          request);
}

herr_t write(size_t n, void *datasets[], hid_t memory_types[], hid_t memory_spaces[],
             hid_t file_spaces[], hid_t dxpl, const void *buffers[], void **)
{
    const Handle self_handle(datasets[0]);
    const Object &self = *self_handle;
    UnderObjects below(n, datasets);
    if (!below.ok()) return -1;
    for (size_t i = 0; i < n; i++)
        before_write(*Handle(datasets[i]), H5I_DATASET);
    const auto direct = self.below->dataset_cls.write;
    return direct
               ? direct(n, below.array(), memory_types, memory_spaces, file_spaces, dxpl, buffers,
                        nullptr)
               : self.hdf5().H5VLdataset_write(n, below.array(), self.connector, memory_types,
                                               memory_spaces, file_spaces, dxpl, buffers, nullptr);
}

herr_t get(void *dataset, H5VL_dataset_get_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(dataset);
    const Object &self = *self_handle;
    return pass_on(self, self.below->dataset_cls.get, self.hdf5().H5VLdataset_get, args, dxpl,
                   nullptr);
}

herr_t specific(void *dataset, H5VL_dataset_specific_args_t *args, hid_t dxpl, void **)
{
    const DatasetHandle self_handle(dataset);
    Object &self = *self_handle;
    if (args->op_type == H5VL_DATASET_SET_EXTENT) before_write(self, H5I_DATASET);
    // Before the call: a refresh reopens the object, and the wrapper is another one afterwards.
    if (args->op_type != H5VL_DATASET_FLUSH) forget_dataset(self);
    return pass_on(self, self.below->dataset_cls.specific, self.hdf5().H5VLdataset_specific, args,
                   dxpl, nullptr);
}

herr_t optional(void *dataset, H5VL_optional_args_t *args, hid_t dxpl, void **)
{
    const Handle self_handle(dataset);
    Object &self = *self_handle;
    if (args->op_type == H5VL_NATIVE_DATASET_CHUNK_WRITE) before_write(self, H5I_DATASET);
    return pass_on(self, self.below->dataset_cls.optional, self.hdf5().H5VLdataset_optional, args,
                   dxpl, nullptr);
}

herr_t close(void *dataset, hid_t dxpl, void **)
{
    DatasetHandle self(dataset);
    const herr_t result = pass_on(*self, self->below->dataset_cls.close,
                                  self->hdf5().H5VLdataset_close, dxpl, nullptr);
    if (result >= 0)
        self.release();
    else // HDF5 has freed it all the same, and what is opened next may lie there
        forget_dataset(*self);
    return result;
}

} // namespace

void fill_dataset_class(H5VL_dataset_class_t &dataset_class)
{
    dataset_class = {create, open, read, write, get, specific, optional, close};
}

} // namespace sds::vol
