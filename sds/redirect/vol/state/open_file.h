// The files that programs have opened through the connector: their identity, who writes them, and
// the redirect table that may serve their reads.
#pragma once

#include <stdint.h>
#include <sys/stat.h>

#include "object.h"
#include "sds/identity.h"
#include "sds/table_format.h"

namespace sds::vol
{

struct OpenReplica;  // replica.h
struct OriginalFile; // original_file.h

// One H5Fopen, or a file that HDF5 opened by itself to follow an external link and that is being
// written. Counted: the file's wrapper and those of all objects reached through it hold it.
struct OpenFile {
    OpenFile *next;
    const Host *host;
    int references;
    int number;           // of its objects that have no wrapper; 0: none is left
    unsigned long fileno; // HDF5's number of it, never given twice; 0: HDF5 opened it by itself
    const void *under;    // HDF5's own of it while the program has it open, then nullptr
    char *name;           // by which it was opened
    char *path;           // canonical; the name where it is no path of a file
    bool is_path;
    uint64_t device; // with the inode: which file
    uid_t owner;
    sds_identity identity; // of HDF5's descriptor when it was opened; zeros where it is no path
    bool writable;
    bool collective_metadata; // whoever reads its metadata waits for the others to do so, too
    sds_table *table;         // nullptr: reads are not redirected
    bool is_stale;            // changed since, or being written: never redirected again
    bool is_written;          // open for writing in this process as well: HDF5 alone reads it
    int64_t checked_ns;       // when its identity was last compared, monotonic
    int64_t invalidated_ns;   // when its table was last removed before a write; 0: never
    int64_t searching_ns;     // spent in searching it for paths
    OpenReplica *replicas;    // opened so far
    OriginalFile *original;   // nullptr: HDF5 alone reads it
};

// Watches one H5Fopen or H5Fcreate, begun before it and ended once it has succeeded.
class FileOpening
{
  public:
    FileOpening(Host &host, const char *name, unsigned flags, hid_t under_fapl);
    ~FileOpening();
    FileOpening(const FileOpening &) = delete;
    FileOpening &operator=(const FileOpening &) = delete;
    // Enter the file into the list; nullptr where there is nothing to remember.
    OpenFile *opened(const Object &file);
    // The same for a file that was created or truncated.
    OpenFile *created(const Object &file);

  private:
    OpenFile *enter(const Object &file, bool writable);
    bool look_at(int fd, bool writable, struct stat &now);
    bool may_redirect(const OpenFile &file, unsigned intent) const;
    bool may_read_past_hdf5(const OpenFile &file, unsigned intent) const;

    Host &host_;
    const char *name_;
    unsigned flags_;
    hid_t fapl_;
    const char *path_; // within the name
    bool plain_;       // an ordinary file: what lies at the path is what HDF5 sees
    bool mpio_;
    bool collective_metadata_;
    bool image_;      // in memory: written back when it is closed, if at all
    char *canonical_; // nullptr where nothing lies at the path
    struct stat before_;
    bool unchanged_;    // what was opened is what lay there before
    int n_descriptors_; // of it, before it was opened through MPI-IO
};

// The open file of this number, counted; nullptr where the program has opened none, or where it
// has changed between two openings.
OpenFile *find_file(const Host &host, unsigned long fileno);
// To be called before a file is mounted in another one. From then on HDF5 gives the paths of its
// datasets from the root of that other one, also those opened through the file itself, where they
// may be those of different datasets of this one; and it says of no path which it is.
void remember_mount(const Object &child);
bool was_mounted(const OpenFile &file);

// The open file of this number; nullptr for 0.
constexpr int most_numbered_files = 4095;
OpenFile *numbered_file(int number);

OpenFile *hold_file(OpenFile *file);
// To be called before HDF5 closes what it has under the file's wrapper.
void remember_close(const Object &file);
void release_file(OpenFile *file);
// False where nothing else holds it: then it stays.
bool release_unless_last(OpenFile *file);

// The open file of this name, counted: of several, one that is writable.
OpenFile *find_named(const Host &host, const char *name);
// Of a parallel build: true where no file of this name is known, or where its metadata is read
// collectively.
bool may_read_collectively(const Host &host, const char *name);

// False where no open file has a table.
extern int n_tables; // open files with a table; read without the lock
inline bool any_tables()
{
    return __atomic_load_n(&n_tables, __ATOMIC_RELAXED) != 0;
}

// To be called before anything that changes the file that holds this object: removes its table.
// type: the object's.
void before_write(Object &object, H5I_type_t type);
// A file was removed by name.
void drop_table_of(const char *name);

} // namespace sds::vol
