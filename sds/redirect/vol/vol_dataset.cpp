// Datasets.
#include "object.h"
#include "open_dataset.h"
#include "open_file.h"
#include "original_choice.h"
#include "pass_on.h"
#include "read_below.h"
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
    Object &self = *as_object(object);
    before_write(self, location->obj_type);
    return wrap_beside(self, pass_on_at(self, location, self.below->dataset_cls.create,
                                        self.hdf5().H5VLdataset_create, name, lcpl, type, space,
                                        dcpl, dapl, dxpl, nullptr));
}

void *open(void *object, const H5VL_loc_params_t *location, const char *name, hid_t dapl,
           hid_t dxpl, void **)
{
    const Object &self = *as_object(object);
    return wrap_beside(self, pass_on_at(self, location, self.below->dataset_cls.open,
                                        self.hdf5().H5VLdataset_open, name, dapl, dxpl, nullptr));
}

herr_t read_original(Object &object, const ReadRequest &request)
{
    ReadRequest asked = request; // HDF5 takes arrays, of one each
    return read_below(object, 1, &object.under, &asked.memory_type, &asked.memory_space,
                      &asked.file_space, asked.dxpl, &asked.buffer);
}

// Whether only the engine could read it in place of HDF5, and would gain nothing. Told without a
// description of the dataset, which not every program that reads one needs.
bool is_plain(Object &object, const ReadRequest &request)
{
    if (any_tables()) return false;
    const OpenDataset *known = __atomic_load_n(&object.dataset, __ATOMIC_ACQUIRE);
    if (known && !known->redirection) return true;
    return !may_gain(*object.host, request.file_space, known ? known->window_elements : 0);
}

// Read one dataset, by whatever serves it, and trace the read by the clock.
herr_t read_one(Object &object, const ReadRequest &request, const sds_tick_clock *clock)
{
    if (!clock && is_plain(object, request)) return read_original(object, request);
    OpenDataset *dataset = dataset_of(object, request.dxpl);
    if (!dataset || (!clock && !dataset->redirection)) return read_original(object, request);
    const Host &host = *object.host;
    const sds_trace_dataset &stored = dataset->description;
    sds_tick_span span;
    if (clock) span = sds_tick_span_begin(clock);
    Selection selection;
    int64_t served_by = 0;
    const bool is_asked = may_serve(host, *dataset, request.file_space);
    if (is_asked && is_selection(host, request.file_space)) {
        select(host, request.file_space, stored.rank, stored.extent, selection);
        served_by = serve_read(object, *dataset, selection, request);
        if (served_by != 0 && !leave_word(object, stored, request)) served_by = 0;
    }
    const herr_t result = served_by == 0 ? read_original(object, request) : 0;
    if (result < 0 || !clock) return result;
    sds_tick_span_end(&span);
    if (!is_asked)
        select_done(host, request.file_space, stored.rank, stored.extent, dataset->reads_boxes,
                    selection);
    trace_read(*dataset, selection, span, served_by, is_collective(host, request.dxpl));
    return result;
}

herr_t read(size_t n, void *datasets[], hid_t memory_types[], hid_t memory_spaces[],
            hid_t file_spaces[], hid_t dxpl, void *buffers[], void **)
{
    const sds_tick_clock *clock = trace_clock();
    if (n > 1)
        return read_many({n, datasets, memory_types, memory_spaces, file_spaces, dxpl, buffers},
                         clock);
    Object &object = *as_object(datasets[0]);
    if (clock || any_tables() || any_originals())
        return read_one(
            object, {memory_types[0], memory_spaces[0], file_spaces[0], dxpl, buffers[0]}, clock);
    return read_below(object, 1, &object.under, memory_types, memory_spaces, file_spaces, dxpl,
                      buffers);
}

herr_t write(size_t n, void *datasets[], hid_t memory_types[], hid_t memory_spaces[],
             hid_t file_spaces[], hid_t dxpl, const void *buffers[], void **)
{
    const Object &self = *as_object(datasets[0]);
    UnderObjects below(n, datasets);
    if (!below.ok()) return -1;
    for (size_t i = 0; i < n; i++)
        before_write(*as_object(datasets[i]), H5I_DATASET);
    const auto direct = self.below->dataset_cls.write;
    return direct
               ? direct(n, below.array(), memory_types, memory_spaces, file_spaces, dxpl, buffers,
                        nullptr)
               : self.hdf5().H5VLdataset_write(n, below.array(), self.connector, memory_types,
                                               memory_spaces, file_spaces, dxpl, buffers, nullptr);
}

herr_t get(void *dataset, H5VL_dataset_get_args_t *args, hid_t dxpl, void **)
{
    const Object &self = *as_object(dataset);
    return pass_on(self, self.below->dataset_cls.get, self.hdf5().H5VLdataset_get, args, dxpl,
                   nullptr);
}

herr_t specific(void *dataset, H5VL_dataset_specific_args_t *args, hid_t dxpl, void **)
{
    Object &self = *as_object(dataset);
    if (args->op_type == H5VL_DATASET_SET_EXTENT) before_write(self, H5I_DATASET);
    // Before the call: a refresh reopens the object, and the wrapper is another one afterwards.
    if (args->op_type != H5VL_DATASET_FLUSH) forget_dataset(self);
    return pass_on(self, self.below->dataset_cls.specific, self.hdf5().H5VLdataset_specific, args,
                   dxpl, nullptr);
}

herr_t optional(void *dataset, H5VL_optional_args_t *args, hid_t dxpl, void **)
{
    Object &self = *as_object(dataset);
    if (args->op_type == H5VL_NATIVE_DATASET_CHUNK_WRITE) before_write(self, H5I_DATASET);
    return pass_on(self, self.below->dataset_cls.optional, self.hdf5().H5VLdataset_optional, args,
                   dxpl, nullptr);
}

herr_t close(void *dataset, hid_t dxpl, void **)
{
    Object *self = as_object(dataset);
    const herr_t result = pass_on(*self, self->below->dataset_cls.close,
                                  self->hdf5().H5VLdataset_close, dxpl, nullptr);
    if (result >= 0) release(self);
    return result;
}

} // namespace

void fill_dataset_class(H5VL_dataset_class_t &dataset_class)
{
    dataset_class = {create, open, read, write, get, specific, optional, close};
}

} // namespace sds::vol
