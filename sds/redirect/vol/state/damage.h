// Replicas that this process found damaged.
#pragma once

#include <stdint.h>

#include "sds/identity.h"

namespace sds::vol
{

// Leave a report in the spool: the server, or the next verification of all replicas, verifies the
// replica of that number, and takes it out of service where it is damaged on the disk.
void report_damage(int64_t replica_id);

// Report it, and serve nothing from the file any more.
void note_damage(int64_t replica_id, const sds_identity &identity);

bool is_known_damaged(const sds_identity &identity);

} // namespace sds::vol
