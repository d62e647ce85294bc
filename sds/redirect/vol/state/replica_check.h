// The check of a replica file before it serves: whose it is, that it is the one that was published,
// and that what lies around its dataset is whole.
#pragma once

#include <sys/types.h>

#include "sds/geometry.h"
#include "sds/table_format.h"

namespace sds::vol
{

// True for whom the connector trusts with tables and replicas: the source's owner, this user, and
// the service account that is configured.
bool is_trusted_owner(uid_t owner, uid_t source_owner);

// True where this process has found that what lies around the dataset of a replica is whole.
bool was_checked(const sds_candidate &candidate);

// Why the open file is not to be used; nullptr where it is. slab: what is read of the source first,
// nullptr where that is not known.
const char *find_replica_problem(int fd, const sds_table_dataset &dataset,
                                 const sds_candidate &candidate, uid_t source_owner,
                                 const sds_hyperslab *slab);

} // namespace sds::vol
