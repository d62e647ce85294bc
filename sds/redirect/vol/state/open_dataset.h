// What the connector knows of a dataset that is being read.
#pragma once

#include "branch.h"
#include "object.h"
#include "sds/trace_format.h"

namespace sds::vol
{

struct OpenFile;
struct Redirection; // redirect.h

// What is stored, in as little memory as it takes: programs keep thousands of datasets open.
struct StoredDataset {
    const char *file;      // canonical path, or the name by which it was opened
    const char *path;      // "" where it is not known
    const int64_t *extent; // rank of them
    const int64_t *chunk;  // as many; nullptr unless chunked
    int64_t element_bytes;
    int64_t data_offset_bytes; // -1 unless contiguous
    int32_t rank;
    int32_t type_class; // H5T_class_t
    int32_t storage;    // sds_storage_kind
    int32_t n_filters;
};

// Made at the first read through a dataset's handle, dropped when its extent may have changed.
struct OpenDataset {
    const Host *host;
    OpenFile *file;           // counted; nullptr where it was not opened by this process
    Redirection *redirection; // nullptr: read from the original
    int64_t window_elements;  // reads within as many gain nothing by the engine
    bool is_traced;
    bool reads_boxes;          // the last read that was traced selected a box
    int8_t box_rank;           // its rank where boxes are traced the short way, else -1
    uint32_t trace_id;         // 0: not in the trace yet
    StoredDataset description; // its arrays and strings lie behind, the file's path in the file
    int64_t numbers[];
};

// As the trace describes it. The result points into the dataset.
void describe_for_trace(const OpenDataset &dataset, sds_trace_dataset &out);

// Extent, storage and element of a dataset. Returns its type, to be closed; negative where it
// cannot be had.
hid_t describe_stored(const Object &object, sds_trace_dataset &out);

// Creation properties of a dataset, to be closed; negative where they cannot be had. HDF5 converts
// a fill value of variable length into memory from the allocator of the running call's transfer
// properties, and H5Pclose frees it with the default one: the call gets a context of its own.
hid_t creation_properties_of(const Object &dataset);

// Which dataset of which file it is, by whatever name it was opened.
struct DatasetIdentity {
    unsigned long fileno; // HDF5's number of the open file that holds it
    unsigned char token[16];
};
bool read_identity(const Object &object, DatasetIdentity &out);

// The type of a dataset's elements in the file, for one read: what is kept open shows in the
// program's H5Fget_obj_count.
class FileType
{
  public:
    explicit FileType(const Object &dataset);
    ~FileType();
    FileType(const FileType &) = delete;
    FileType &operator=(const FileType &) = delete;

    hid_t id() const { return id_; } // negative where it cannot be had

  private:
    const Functions &hdf5_;
    hid_t id_;
};

OpenDataset *make_dataset(Object &object);

// The state of a dataset's wrapper; nullptr where memory is exhausted.
inline OpenDataset *dataset_of(Object &object)
{
    OpenDataset *known = __atomic_load_n(&object.dataset, __ATOMIC_ACQUIRE);
    return mostly(known) ? known : make_dataset(object);
}
// Forget it: the next read looks anew.
void forget_dataset(Object &object);
void release_dataset(OpenDataset *dataset);

} // namespace sds::vol
