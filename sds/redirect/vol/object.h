// The object that the connector hands to HDF5 in place of the one of the connector below.
#pragma once

#include "host.h"
#include "small_reads.h"

namespace sds::vol
{

struct OpenDataset; // open_dataset.h
struct OpenFile;    // open_file.h

struct Object {
    void *under;               // the object of the connector below
    hid_t connector;           // that connector
    const H5VL_class_t *below; // its callbacks, as far as they are to be called directly
    Host *host;
    OpenFile *file;       // through which it was reached, counted; nullptr where not known
    bool file_holds_it;   // file is known to be the one that it lies in
    bool may_lack_path;   // reached by its address: HDF5 would search the file for a name
    OpenDataset *dataset; // of a dataset's wrapper, from its first read on
    SmallReads small_reads;

    const Functions &hdf5() const { return host->hdf5; }
};

inline Object *as_object(void *object)
{
    return static_cast<Object *>(object);
}
inline const Object *as_object(const void *object)
{
    return static_cast<const Object *>(object);
}
inline void *under(void *object)
{
    return object ? as_object(object)->under : nullptr;
}

// Wrap what the connector below returned; nullptr for nullptr (and where memory is exhausted).
Object *wrap(Host &host, hid_t connector, void *under);

// Wrap an object that was reached through another one. It keeps the file: HDF5 leaves a file open
// for as long as an object in it is, whether or not the program has closed it.
Object *wrap_beside(const Object &neighbour, void *under);

// Free the wrapper; what it wraps is not touched.
void release(Object *object);

} // namespace sds::vol
