// Replica files: opened once per source file that is open, and checked before they serve.
#pragma once

#include <sys/types.h>

#include "replica_dataset.h"
#include "sds/read_engine.h"

namespace sds::vol
{

struct OpenFile;

struct OpenReplica {
    OpenReplica *next;
    int64_t replica_id;
    const char *path; // the table's
    sds_identity identity;
    int fd;                 // -1: opened for each read
    sds_file *file;         // of fd, where that is kept
    uint64_t device;        // with the inode: whose descriptor fd is
    const char *problem;    // why it is not to be used; nullptr where it may
    int n_failures;         // reads of it that failed
    ReplicaDataset dataset; // where it is stored in chunks
};

// The replica of a candidate in the file's table, opened and checked; nullptr where memory is
// exhausted, or too many in chunks are open.
OpenReplica *replica_of(OpenFile &file, const sds_table_dataset &dataset,
                        const sds_candidate &candidate);

// Why it is not to be used; nullptr where it may.
const char *problem_of(const OpenReplica &replica);

// A replica for one read.
class ReplicaFile
{
  public:
    explicit ReplicaFile(const OpenReplica &replica);
    ~ReplicaFile();
    ReplicaFile(const ReplicaFile &) = delete;
    ReplicaFile &operator=(const ReplicaFile &) = delete;

    sds_file *get() const { return file_; } // nullptr where there is none to read from
    // True while it is the file that was checked, and that has not changed. So it begins; asked
    // again after the read, because a program may close descriptors that are not its own and have
    // the number given to another file.
    bool is_unchanged() const;

  private:
    const OpenReplica &replica_;
    int fd_;
    sds_file *file_;
};

// A read of the replica has failed. After a few it is left alone: a device that fails also keeps
// its readers waiting. Where it is stored in chunks, it is left alone at once: there it is damage,
// which does not go away, that is seen.
void count_failure(OpenReplica &replica);

void close_replicas(OpenReplica *first);

// The first that HDF5 has open; nullptr where there is none.
OpenReplica *find_open_dataset(OpenReplica *first);
// Take from a replica what HDF5 has open of it, for good.
ReplicaDataset take_dataset(OpenReplica &replica);

// True for whom the connector trusts with tables and replicas: the source's owner, this user, and
// the service account that is configured.
bool is_trusted_owner(uid_t owner, uid_t source_owner);

} // namespace sds::vol
