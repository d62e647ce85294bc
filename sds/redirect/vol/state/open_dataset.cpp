#include "open_dataset.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "decision_log.h"
#include "error_stack.h"
#include "library_context.h"
#include "open_file.h"
#include "original_choice.h"
#include "pass_on.h"
#include "queries.h"
#include "redirect.h"

namespace sds::vol
{
namespace
{

// H5D_layout_t
constexpr int layout_compact = 0;
constexpr int layout_contiguous = 1;
constexpr int layout_chunked = 2;
constexpr int layout_virtual = 3;

bool read_path(const Object &object, char *path)
{
    size_t length = 0;
    H5VL_loc_params_t self;
    memset(static_cast<void *>(&self), 0, sizeof self);
    self.obj_type = H5I_DATASET;
    self.type = H5VL_OBJECT_BY_SELF;
    Request<H5VL_object_get_args_t> request(H5VL_OBJECT_GET_NAME);
    request.args.args.get_name.buf_size = PATH_MAX;
    request.args.args.get_name.buf = path;
    request.args.args.get_name.name_len = &length;
    return pass_on_at(object, &self, object.below->object_cls.get, object.hdf5().H5VLobject_get,
                      &request.args, *object.host->default_dxpl, nullptr) >= 0 &&
           length < PATH_MAX;
}

// HDF5 searches the file, object by object, for the path of what was reached by its address. A
// program that follows thousands of references is not to wait for that.
constexpr int64_t max_searched_bytes = 1 << 20; // of a file: bounds one search
constexpr int64_t max_searching_ns = 2000000;   // in all, per open file

bool search_path(const Object &object, OpenFile &file, char *path)
{
    if (!file.is_path || file.writable || file.identity.size_bytes > max_searched_bytes ||
        __atomic_load_n(&file.searching_ns, __ATOMIC_RELAXED) > max_searching_ns)
        return false;
    const int64_t begin_ns = monotonic_ns();
    const bool found = read_path(object, path);
    __atomic_add_fetch(&file.searching_ns, monotonic_ns() - begin_ns, __ATOMIC_RELAXED);
    return found;
}

bool find_path(const Object &object, OpenFile *file, char *path)
{
    if (!object.may_lack_path) return read_path(object, path);
    return file && search_path(object, *file, path);
}

// Whether it lies in the file through which it was reached, as far as HDF5 knows that without a
// look into the dataset's header, which it may have to read again. H5VL_OBJECT_GET_FILE would tell
// as well, but has HDF5 believe that the program has the file open: of what was reached through an
// external link or H5Freopen, it would never be closed.
bool lies_in(const Object &object, const OpenFile &file)
{
    const auto file_struct = object.hdf5().H5VL_native_get_file_struct;
    const void *open_file = __atomic_load_n(&file.under, __ATOMIC_RELAXED);
    void *found = nullptr;
    return file_struct && open_file && object.connector == object.host->native &&
           file_struct(object.under, H5I_DATASET, &found) >= 0 && found == open_file;
}

// The open file that holds the dataset, counted: not always the one through which it was reached.
OpenFile *file_of(const Object &object)
{
    if (object.file && lies_in(object, *object.file)) return hold_file(object.file);
    DatasetIdentity identity;
    if (!read_identity(object, identity)) return nullptr;
    if (object.file && object.file->fileno == identity.fileno) return hold_file(object.file);
    return find_file(*object.host, identity.fileno);
}

bool get(const Object &object, Request<H5VL_dataset_get_args_t> &request)
{
    return pass_on(object, object.below->dataset_cls.get, object.hdf5().H5VLdataset_get,
                   &request.args, *object.host->default_dxpl, nullptr) >= 0;
}

void read_extent(const Object &object, sds_trace_dataset &out)
{
    const Functions &hdf5 = object.hdf5();
    Request<H5VL_dataset_get_args_t> request(H5VL_DATASET_GET_SPACE);
    if (!get(object, request)) return;
    const hid_t space = request.args.args.get_space.space_id;
    hsize_t extent[SDS_MAX_RANK];
    const int rank = hdf5.H5Sget_simple_extent_dims(space, extent, nullptr);
    for (int axis = 0; axis < rank; axis++)
        out.extent[axis] = static_cast<int64_t>(extent[axis]);
    out.rank = rank > 0 ? rank : 0;
    hdf5.H5Sclose(space);
}

// The dataset's type, to be closed; negative where it cannot be had.
hid_t read_type(const Object &object, sds_trace_dataset &out)
{
    const Functions &hdf5 = object.hdf5();
    Request<H5VL_dataset_get_args_t> request(H5VL_DATASET_GET_TYPE);
    if (!get(object, request)) return -1;
    const hid_t type = request.args.args.get_type.type_id;
    out.element_bytes = static_cast<int64_t>(hdf5.H5Tget_size(type));
    out.type_class = hdf5.H5Tget_class(type);
    return type;
}

// Ask the native connector for one value; false where the dataset has none.
template <typename Value> bool get_native(const Object &object, int operation, Value *value)
{
    struct {
        Value *value;
        char room[120]; // the native connector's union of all optional operations
    } request;
    memset(&request, 0, sizeof request);
    request.value = value;
    H5VL_optional_args_t args = {operation, &request};
    return pass_on(object, object.below->dataset_cls.optional, object.hdf5().H5VLdataset_optional,
                   &args, *object.host->default_dxpl, nullptr) >= 0;
}

// Of a contiguous dataset whose values lie in the file, else -1. Behind a user block, whose size is
// a power of two, HDF5 gives one less than that size of those that lie nowhere in the file.
int64_t data_offset(const Object &object)
{
    haddr_t offset = UINT64_MAX;
    if (!get_native(object, H5VL_NATIVE_DATASET_GET_OFFSET, &offset) || offset > INT64_MAX ||
        (offset & (offset + 1)) == 0)
        return -1;
    return static_cast<int64_t>(offset);
}

// For the creation properties HDF5 looks into the dataset's header, which it may have to read
// again: a program that reads more datasets in turn than it keeps headers of has its cache of them
// grow. Most datasets have none that matters.
void read_storage(const Object &object, sds_trace_dataset &out)
{
    out.data_offset_bytes = data_offset(object);
    if (out.data_offset_bytes >= 0) {
        out.storage = SDS_STORAGE_CONTIGUOUS;
        return;
    }
    const Functions &hdf5 = object.hdf5();
    const hid_t dcpl = creation_properties_of(object);
    if (dcpl < 0) return;
    hsize_t chunk[SDS_MAX_RANK];
    switch (hdf5.H5Pget_layout(dcpl)) {
    case layout_compact:
        out.storage = SDS_STORAGE_COMPACT;
        break;
    case layout_contiguous:
        out.storage =
            hdf5.H5Pget_external_count(dcpl) > 0 ? SDS_STORAGE_EXTERNAL : SDS_STORAGE_CONTIGUOUS;
        break;
    case layout_chunked:
        out.storage = SDS_STORAGE_CHUNKED;
        for (int axis = hdf5.H5Pget_chunk(dcpl, SDS_MAX_RANK, chunk) - 1; axis >= 0; axis--)
            out.chunk[axis] = static_cast<int64_t>(chunk[axis]);
        break;
    case layout_virtual:
        out.storage = SDS_STORAGE_VIRTUAL;
        break;
    default:
        break;
    }
    const int n_filters = hdf5.H5Pget_nfilters(dcpl);
    out.n_filters = n_filters > 0 ? n_filters : 0;
    hdf5.H5Pclose(dcpl);
}

// Whether the program's HDF5 can read the dataset's chunks. Where it cannot, its error is what a
// program gets without SDS; a replica would hide it.
bool has_filters(const Object &object)
{
    const Functions &hdf5 = object.hdf5();
    const hid_t dcpl = creation_properties_of(object);
    if (dcpl < 0) return false;
    const int n = hdf5.H5Pget_nfilters(dcpl);
    bool has_all = true;
    for (int i = 0; i < n && has_all; i++) {
        unsigned flags = 0, configuration = 0;
        size_t n_values = 0;
        const int filter = hdf5.H5Pget_filter2(dcpl, static_cast<unsigned>(i), &flags, &n_values,
                                               nullptr, 0, nullptr, &configuration);
        has_all = filter >= 0 && hdf5.H5Zfilter_avail(filter) > 0;
    }
    hdf5.H5Pclose(dcpl);
    return has_all;
}

// Replicas are read by SDS itself; tracing who looks into one would call for replicas of replicas.
bool is_replica(const char *file_path)
{
    const size_t n = strlen(config().replicas);
    return n > 0 && strncmp(file_path, config().replicas, n) == 0;
}

// The same as describe_stored without a look into the file, as far as that goes.
hid_t describe_from_memory(const Object &object, sds_trace_dataset &out)
{
    int index_type = 0;
    out.storage = SDS_STORAGE_UNKNOWN;
    out.data_offset_bytes = data_offset(object);
    if (out.data_offset_bytes >= 0)
        out.storage = SDS_STORAGE_CONTIGUOUS;
    else if (!get_native(object, H5VL_NATIVE_DATASET_GET_CHUNK_INDEX_TYPE, &index_type))
        return -1;
    read_extent(object, out);
    return read_type(object, out);
}

// The dataset's state, of one piece. The file is taken over, also where there is no memory.
OpenDataset *make_state(const Host &host, OpenFile *file, const sds_trace_dataset &found)
{
    const size_t rank = static_cast<size_t>(found.rank);
    const size_t n_numbers = found.storage == SDS_STORAGE_CHUNKED ? 2 * rank : rank;
    const size_t path_bytes = strlen(found.path) + 1;
    const size_t file_bytes = file ? 0 : strlen(found.file) + 1; // else the file has it
    auto *dataset = static_cast<OpenDataset *>(
        malloc(sizeof(OpenDataset) + n_numbers * sizeof(int64_t) + path_bytes + file_bytes));
    if (!dataset) {
        if (file) release_file(file);
        return nullptr;
    }
    *dataset = {};
    dataset->host = &host;
    dataset->file = file;
    dataset->box_rank = -1;
    char *path = reinterpret_cast<char *>(dataset->numbers + n_numbers);
    memcpy(path, found.path, path_bytes);
    memcpy(path + path_bytes, found.file, file_bytes);
    memcpy(dataset->numbers, found.extent, rank * sizeof(int64_t));
    memcpy(dataset->numbers + rank, found.chunk, (n_numbers - rank) * sizeof(int64_t));
    StoredDataset &stored = dataset->description;
    stored.file = file ? file->path : path + path_bytes;
    stored.path = path;
    stored.extent = dataset->numbers;
    stored.chunk = n_numbers > rank ? dataset->numbers + rank : nullptr;
    stored.element_bytes = found.element_bytes;
    stored.data_offset_bytes = found.data_offset_bytes;
    stored.rank = found.rank;
    stored.type_class = found.type_class;
    stored.storage = found.storage;
    stored.n_filters = found.n_filters;
    return dataset;
}

// Find who may read it besides HDF5. type: the dataset's.
void redirect(const Object &object, OpenDataset &dataset, hid_t type)
{
    const StoredDataset &stored = dataset.description;
    dataset.redirection = find_redirection(object, dataset, type);
    if (dataset.redirection && dataset.file->original && stored.element_bytes > 0)
        dataset.window_elements = window_elements_of(*dataset.file->original, stored);
    if (dataset.redirection && stored.n_filters > 0 && !has_filters(object)) {
        log_decision("original", stored.file, stored.path,
                     "the program's HDF5 lacks a filter of the dataset");
        release_redirection(dataset.redirection);
        dataset.redirection = nullptr;
    }
}

void name_file_of(const Object &object, char *name)
{
    if (!read_file_name(object, H5I_DATASET, name)) name[0] = '\0';
}

// Where HDF5 reads the metadata of a file collectively, a process that looks into it alone waits
// for others that never come. Then only what HDF5 holds in memory is asked for.
OpenDataset *describe(const Object &object)
{
    const Host &host = *object.host;
    // Asking for what does not exist (an offset not allocated yet) leaves errors on the stack.
    SilenceKeeper silence(host);
    ErrorStackKeeper keep(host);
    PathBuffer name, path;
    if (!name.text() || !path.text()) return nullptr;
    const bool is_parallel = host.hdf5.H5Pget_all_coll_metadata_ops;
    if (is_parallel) name_file_of(object, name.text());
    const bool from_memory = is_parallel && may_read_collectively(host, name.text());
    OpenFile *file = from_memory ? find_named(host, name.text()) : file_of(object);
    if (!file && !is_parallel) name_file_of(object, name.text());
    // HDF5 may have lost a path where objects are renamed.
    const bool has_path = !(file && was_mounted(*file)) &&
                          (!from_memory || (!object.may_lack_path && !(file && file->writable)));
    if (!has_path || !find_path(object, file, path.text())) path.text()[0] = '\0';
    sds_trace_dataset found = {};
    found.file = file ? file->path : name.text();
    found.path = path.text();
    if (from_memory && !has_path) // neither traced nor redirected
        return make_state(host, file, found);
    const hid_t type =
        from_memory ? describe_from_memory(object, found) : describe_stored(object, found);
    OpenDataset *dataset = make_state(host, file, found);
    if (dataset && (type >= 0 || !from_memory)) {
        // Of a chunked dataset, processes that read it open its index together.
        if (type >= 0 && (!from_memory || found.storage == SDS_STORAGE_CONTIGUOUS))
            redirect(object, *dataset, type);
        // Without its extent a read of a virtual dataset cannot be told.
        dataset->is_traced =
            found.storage != SDS_STORAGE_VIRTUAL && !is_replica(dataset->description.file);
    }
    if (type >= 0) object.hdf5().H5Tclose(type);
    return dataset;
}

} // namespace

bool read_identity(const Object &object, DatasetIdentity &out)
{
    constexpr unsigned basic_fields = 1; // H5O_INFO_BASIC
    H5O_info2_t info = {};
    H5VL_loc_params_t self;
    memset(static_cast<void *>(&self), 0, sizeof self);
    self.obj_type = H5I_DATASET;
    self.type = H5VL_OBJECT_BY_SELF;
    Request<H5VL_object_get_args_t> request(H5VL_OBJECT_GET_INFO);
    request.args.args.get_info.fields = basic_fields;
    request.args.args.get_info.oinfo = &info;
    if (pass_on_at(object, &self, object.below->object_cls.get, object.hdf5().H5VLobject_get,
                   &request.args, *object.host->default_dxpl, nullptr) < 0)
        return false;
    out.fileno = info.fileno;
    memcpy(out.token, info.token, sizeof out.token);
    return true;
}

hid_t creation_properties_of(const Object &dataset)
{
    const LibraryContext context(*dataset.host);
    Request<H5VL_dataset_get_args_t> request(H5VL_DATASET_GET_DCPL);
    return context.ok() && get(dataset, request) ? request.args.args.get_dcpl.dcpl_id : -1;
}

hid_t describe_stored(const Object &object, sds_trace_dataset &out)
{
    out.storage = SDS_STORAGE_UNKNOWN;
    read_storage(object, out);
    // Asked for the extent of a virtual dataset, HDF5 opens the sources (through MPI-IO together
    // with the other processes) and sets the dataset's extent to theirs. A program that has asked
    // before would read more than it has memory for.
    if (out.storage != SDS_STORAGE_VIRTUAL) read_extent(object, out);
    return read_type(object, out);
}

FileType::FileType(const Object &dataset) : hdf5_(dataset.hdf5()), id_(-1)
{
    Request<H5VL_dataset_get_args_t> request(H5VL_DATASET_GET_TYPE);
    if (get(dataset, request)) id_ = request.args.args.get_type.type_id;
}

FileType::~FileType()
{
    if (id_ >= 0) hdf5_.H5Tclose(id_);
}

void describe_for_trace(const OpenDataset &dataset, sds_trace_dataset &out)
{
    const StoredDataset &stored = dataset.description;
    const size_t n = static_cast<size_t>(stored.rank) * sizeof(int64_t);
    out = {};
    out.file = stored.file;
    out.path = stored.path;
    if (dataset.file) out.identity = dataset.file->identity;
    out.rank = stored.rank;
    memcpy(out.extent, stored.extent, n);
    if (stored.chunk) memcpy(out.chunk, stored.chunk, n);
    out.element_bytes = stored.element_bytes;
    out.type_class = stored.type_class;
    out.storage = stored.storage;
    out.n_filters = stored.n_filters;
    out.data_offset_bytes = stored.data_offset_bytes;
    snprintf(out.hdf5_version, sizeof out.hdf5_version, "%s", dataset.host->version);
}

OpenDataset *make_dataset(Object &object)
{
    OpenDataset *known = nullptr;
    OpenDataset *made = describe(object);
    if (!made) return nullptr;
    // A build of HDF5 that runs callbacks concurrently may have let another thread in.
    if (__atomic_compare_exchange_n(&object.dataset, &known, made, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return made;
    release_dataset(made);
    return known;
}

void forget_dataset(Object &object)
{
    OpenDataset *known = __atomic_exchange_n(&object.dataset, nullptr, __ATOMIC_ACQ_REL);
    if (known) release_dataset(known);
}

void release_dataset(OpenDataset *dataset)
{
    if (dataset->redirection) release_redirection(dataset->redirection);
    if (dataset->file) {
        after_close(dataset->file->original);
        release_file(dataset->file);
    }
    free(dataset);
}

} // namespace sds::vol
