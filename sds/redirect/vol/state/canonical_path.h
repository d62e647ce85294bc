// Canonical paths of files, of which programs open many in few folders.
#pragma once

#include <sys/stat.h>

namespace sds::vol
{

// The canonical path of a file, to be freed, and its lstat; nullptr where there is none. The folder
// may be remembered from an earlier file: if it has been moved since, or a link to it changed, the
// result is another file's. The caller compares it with the file that HDF5 has opened.
char *canonical_path(const char *path, struct stat &found);

// The same without what is remembered.
char *canonical_path_anew(const char *path, struct stat &found);

// The same of the file that was opened by a path, as the kernel tells it of the descriptor. The
// folder is remembered.
char *canonical_path_of(int fd, const char *path, struct stat &found);

// To be freed; nullptr where the kernel does not tell.
char *path_of_descriptor(int fd);

} // namespace sds::vol
