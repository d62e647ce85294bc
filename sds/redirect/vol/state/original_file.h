// Files that HDF5 has open for reading alone, as the core's engine reads them: through HDF5's own
// descriptor. Opening one more would count against the program's limit, and closing it would drop
// the locks that the process holds on the file.
#pragma once

#include <stdint.h>
#include <sys/stat.h>

#include "object.h"
#include "sds/io_model.h"
#include "sds/read_engine.h"

namespace sds::vol
{

// One for all H5Fopen of a file that HDF5 shares. Counted.
struct OriginalFile {
    OriginalFile *next;
    const Host *host;
    unsigned long fileno; // HDF5's number of the file
    int references;
    int fd;          // HDF5's
    uint64_t device; // with the inode: whose descriptor it was when the file was opened
    uint64_t inode;
    int64_t end;                    // HDF5 refuses to read behind it
    int64_t sieve_bytes;            // of HDF5's buffer, through which it reads short runs
    const sds_io_parameters *costs; // of its file system; nullptr: not measured. By costs_of
    bool has_costs;                 // it was looked for
    sds_file *reader;               // nullptr while the engine has not read it
    int n_reading;                  // uses of the reader under way
    bool is_closed;                 // by HDF5: the reader goes with the last of them
    int n_failures;                 // reads by the engine that failed
    uint32_t compared;              // as of ReplicaDataset
    uint32_t n_judged;              // reads of which it was asked who is to read them
};

// The file that HDF5 has just opened through this list and sec2; nullptr where it is not to be read
// past HDF5: it is small, or has a page buffer. fd: HDF5's; found: its stat.
OriginalFile *open_original(const Object &file, unsigned long fileno, hid_t fapl, int fd,
                            const struct stat &found);
void close_original(OriginalFile *file);

// What was measured of its file system, which is looked for when it is first needed; nullptr where
// nothing was.
const sds_io_parameters *costs_of(OriginalFile &file);

// True while the descriptor is of the file that HDF5 has opened (a program may close what is not
// its own, and have the number given to another file), the file reaches to the end of what is to be
// read (HDF5 reads zeros behind it), and reads of it have not failed too often: a device that fails
// also keeps its readers waiting.
bool may_be_read(const OriginalFile &file, int64_t end);

// To be called when HDF5 has closed what may have been the last object that kept a file open. What
// the engine has mapped keeps the lock that HDF5 had on the file, and the program may want to open
// it for writing at once.
void after_close(OriginalFile *file);

// What reads it, for one read.
class OriginalReader
{
  public:
    explicit OriginalReader(OriginalFile &file);
    ~OriginalReader();
    OriginalReader(const OriginalReader &) = delete;
    OriginalReader &operator=(const OriginalReader &) = delete;

    sds_file *get() const { return reader_; } // nullptr where memory is exhausted

  private:
    OriginalFile &file_;
    sds_file *reader_;
};

// A read by the engine has failed.
void count_failure(OriginalFile &file);

// False where no file is open that the engine may read.
extern int n_originals; // read without the lock
inline bool any_originals()
{
    return __atomic_load_n(&n_originals, __ATOMIC_RELAXED) != 0;
}

// In the child of a fork, with the lock.
void give_up_readers();

} // namespace sds::vol
