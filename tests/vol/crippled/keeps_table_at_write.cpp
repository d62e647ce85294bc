// A connector that leaves the table of a file in place when the file is written.
#include "open_file.h"

namespace sds::vol
{

void before_write() {}

} // namespace sds::vol
