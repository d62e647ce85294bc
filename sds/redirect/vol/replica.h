// Replica files: opened once per source file that is open, and checked before they serve.
#pragma once

#include <sys/types.h>

#include "sds/table_format.h"

namespace sds::vol
{

struct OpenFile;

struct OpenReplica {
    OpenReplica *next;
    int64_t replica_id;
    sds_identity identity;
    int fd;              // -1: not to be used
    const char *problem; // why; nullptr where fd is open
};

// The replica of a candidate in the file's table, opened and checked; nullptr where memory is
// exhausted. n_bytes: of the dataset in it.
const OpenReplica *replica_of(OpenFile &file, const sds_candidate &candidate, int64_t n_bytes);

// True while the descriptor is of the file that was checked. Asked before every read, because a
// program may close descriptors that are not its own and have the number given to another file.
bool is_unchanged(const OpenReplica &replica);
void close_replicas(OpenReplica *first);

// True for whom the connector trusts with tables and replicas: the source's owner, this user, and
// the service account that is configured.
bool is_trusted_owner(uid_t owner, uid_t source_owner);

} // namespace sds::vol
