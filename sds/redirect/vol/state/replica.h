// Replica files: checked before they serve, and open until their source is closed. Of those in
// chunks HDF5 has few open at a time.
#pragma once

#include <sys/types.h>

#include "replica_dataset.h"
#include "sds/blocks.h"
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
    sds_blocks *blocks;     // of one that is not in chunks: checks what is read
    uint64_t device;        // with the inode: whose descriptor fd is
    const char *problem;    // why it is not to be used; nullptr where it may
    int n_failures;         // reads of it that failed
    ReplicaDataset dataset; // where it is stored in chunks; closed now and then
    int n_users;            // reads of the dataset that go on
    int64_t used_ns;        // when the last one ended, monotonic
    int64_t opening_ns;     // what it took to open the dataset
    int32_t n_segments;
    uint8_t announced[]; // of one of segments: how often each segment was, in part
};

// The replica of a candidate in the file's table, for one read. While that lasts, HDF5 has one in
// chunks open.
class ReplicaUse
{
  public:
    // slab: what is read of the source, nullptr where elements are listed.
    ReplicaUse(OpenFile &file, const sds_table_dataset &dataset, const sds_candidate &candidate,
               const sds_hyperslab *slab);
    ~ReplicaUse();
    ReplicaUse(const ReplicaUse &) = delete;
    ReplicaUse &operator=(const ReplicaUse &) = delete;

    // Why it is not to be read; nullptr where it may.
    const char *problem() const { return problem_; }
    OpenReplica &replica() const { return *replica_; } // where there is no problem

  private:
    bool find(OpenFile &file, const sds_candidate &candidate);
    void open(const Host &host, uid_t source_owner, const sds_table_dataset &dataset,
              const sds_candidate &candidate);
    bool hold();

    OpenReplica *replica_;
    const char *problem_;
    const Host *host_; // whose dataset is held
};

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

// The replica of a candidate, if it was looked at already.
const OpenReplica *find_replica(OpenFile &file, const sds_candidate &candidate);
// One that was not: a ReplicaFile of it is of the file that was published, closed afterwards.
OpenReplica replica_to_probe(const sds_candidate &candidate);

// A read of the replica has failed. After a few it is left alone: a device that fails also keeps
// its readers waiting. Where it is stored in chunks, or a block differs from its checksum, it is
// left alone at once and reported (damage.h): there it is damage, which does not go away, that is
// seen.
void count_failure(OpenReplica &replica);

void close_replicas(OpenReplica *first);
// Close what this host has open of replicas, before it ends.
void close_replica_datasets(const Host &host);

// Whether the program can spare descriptors while it is given such a one.
bool leaves_room(int fd);

} // namespace sds::vol
