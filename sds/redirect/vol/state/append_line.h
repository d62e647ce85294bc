// Lines of text for people, in files that other processes append to as well.
#pragma once

#include <stddef.h>
#include <sys/types.h>

namespace sds::vol
{

constexpr off_t no_limit = -1;

// Append one line, its end included, in one write: O_APPEND keeps lines of several processes whole.
// A file that has most_bytes already stays as it is. What cannot be written is left out, without a
// word, a signal or a change of errno.
void append_line(const char *path, const char *line, size_t n_bytes, off_t most_bytes);

} // namespace sds::vol
