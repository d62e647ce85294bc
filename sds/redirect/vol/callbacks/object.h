// The object that the connector hands to HDF5 in place of the one of the connector below.
#pragma once

#include <stdint.h>

#include "branch.h"
#include "host.h"

namespace sds::vol
{

struct OpenDataset; // open_dataset.h
struct OpenFile;    // open_file.h

// Of the reads through one handle of a dataset. Threads may count past each other: what is counted
// decides nothing but how often HDF5 is asked.
struct SmallReads {
    uint32_t in_a_row; // that could gain nothing
    uint32_t patience; // beyond the least: how many before they are passed over
};

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

// So many objects have wrappers at a time. Programs hold a hundred thousand open; what is opened
// beyond is handed out bare: the pointer of the connector below, which is aligned, with the slot of
// the host behind its lowest bit and the file in its highest, where it has such bits to spare. HDF5
// does nothing with what it gets from a connector but hand it back. Files and what does not fit
// have wrappers.
constexpr int most_wrapped = 512;

inline bool is_bare(const void *object)
{
    return reinterpret_cast<uintptr_t>(object) & 1;
}
inline void *under_bare(const void *object)
{
    constexpr uintptr_t address = 0x0000fffffffffff0;
    return reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(object) & address);
}
inline Host &host_of_bare(const void *object)
{
    return host_at(static_cast<int>(reinterpret_cast<uintptr_t>(object) >> 1 & (max_hosts - 1)));
}
inline void *under(void *object)
{
    if (!object) return nullptr;
    return seldom(is_bare(object)) ? under_bare(object) : static_cast<Object *>(object)->under;
}

// What HDF5 hands in, for one call: its wrapper, or one that is made for the call of a bare one.
class Handle
{
  public:
    explicit Handle(const void *object)
        : given_(const_cast<void *>(object)), object_(static_cast<Object *>(given_))
    {
        if (seldom(is_bare(given_))) make_wrapper();
    }
    ~Handle()
    {
        if (seldom(object_ == &made_)) drop_wrapper();
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;

    Object &operator*() const { return *object_; }
    Object *operator->() const { return object_; }
    explicit operator bool() const { return object_; }
    // HDF5 has closed it: what belongs to it is freed. Nothing else may follow.
    void release();

  protected:
    bool is_made() const { return object_ == &made_; }
    void *const given_;

  private:
    void make_wrapper();
    void drop_wrapper();

    Object *object_;
    Object made_; // of a bare object; not set otherwise
};

// The same of a dataset, with what is known of it. Of bare ones, that of the latest is kept, and of
// others what tracing them takes (known_datasets.h).
class DatasetHandle : public Handle
{
  public:
    explicit DatasetHandle(void *dataset) : Handle(dataset)
    {
        if (seldom(is_made())) take_state();
    }
    ~DatasetHandle()
    {
        if (seldom(is_made())) keep_state();
    }

  private:
    void take_state();
    void keep_state();
};

// Wrap a file that the connector below returned; nullptr for nullptr (and where memory is
// exhausted).
Object *wrap(Host &host, hid_t connector, void *under);
// The same for any object, bare or with a wrapper. file: counted here; may be nullptr.
void *hand_out(Host &host, hid_t connector, void *under, OpenFile *file, bool may_lack_path);

// Hand out an object that was reached through another one. It keeps the file: HDF5 leaves a file
// open for as long as an object in it is, whether or not the program has closed it.
void *wrap_beside(const Object &neighbour, void *under, bool may_lack_path = false);

} // namespace sds::vol
