// What `sds calibrate` measured of the file systems that programs read from.
#pragma once

#include "sds/io_model.h"

namespace sds::vol
{

// What reads from an open file cost; nullptr where its file system was not measured. Lives as long
// as the process.
const sds_io_parameters *measured_parameters(int fd);

} // namespace sds::vol
