#include "canonical_path.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared_state.h"

namespace sds::vol
{
namespace
{

// Both end with a slash.
struct Folder {
    char *given; // absolute
    char *canonical;
};
constexpr size_t n_folders = 8;
Folder known[n_folders];
size_t n_learned = 0;

// The last part of a path; nullptr where it does not name an entry of a folder.
const char *entry_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *entry = slash ? slash + 1 : path;
    return *entry && strcmp(entry, ".") != 0 && strcmp(entry, "..") != 0 ? entry : nullptr;
}

// The absolute path of the folder before this entry, to be freed; nullptr where it cannot be had.
char *folder_of(const char *path, const char *entry)
{
    const size_t n = static_cast<size_t>(entry - path);
    if (path[0] == '/') return strndup(path, n);
    char *current = getcwd(nullptr, 0), *folder = nullptr;
    if (current && asprintf(&folder, "%s/%.*s", current, static_cast<int>(n), path) < 0)
        folder = nullptr;
    free(current);
    return folder;
}

char *join(const char *folder, const char *entry)
{
    const size_t n = strlen(folder), n_entry = strlen(entry) + 1;
    auto *path = static_cast<char *>(malloc(n + n_entry));
    if (!path) return nullptr;
    memcpy(path, folder, n);
    memcpy(path + n, entry, n_entry);
    return path;
}

char *recall(const char *folder, const char *entry)
{
    SharedStateLock lock;
    for (const Folder &one : known)
        if (one.given && strcmp(one.given, folder) == 0) return join(one.canonical, entry);
    return nullptr;
}

// folder: taken over.
void learn(char *folder, const char *canonical, const char *entry)
{
    const size_t n = strlen(canonical), n_entry = strlen(entry);
    const bool is_in_folder = n > n_entry && canonical[n - n_entry - 1] == '/' &&
                              strcmp(canonical + n - n_entry, entry) == 0;
    char *prefix = is_in_folder ? strndup(canonical, n - n_entry) : nullptr;
    if (!prefix) {
        free(folder);
        return;
    }
    Folder dropped;
    {
        SharedStateLock lock;
        size_t at = 0;
        while (at < n_folders && !(known[at].given && strcmp(known[at].given, folder) == 0))
            at++;
        if (at == n_folders) at = n_learned++ % n_folders;
        dropped = known[at];
        known[at] = {folder, prefix};
    }
    free(dropped.given);
    free(dropped.canonical);
}

// canonical: what the path leads to, taken over; nullptr for nothing.
char *look_and_learn(char *canonical, const char *path, struct stat &found)
{
    if (!canonical || lstat(canonical, &found) != 0) {
        free(canonical);
        return nullptr;
    }
    const char *entry = entry_of(path);
    char *folder = entry ? folder_of(path, entry) : nullptr;
    if (folder) learn(folder, canonical, entry);
    return canonical;
}

} // namespace

char *path_of_descriptor(int fd)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    auto *path = static_cast<char *>(malloc(PATH_MAX));
    const ssize_t n = path ? readlink(link, path, PATH_MAX - 1) : -1;
    if (n > 0) {
        path[n] = '\0';
        return path;
    }
    free(path);
    return nullptr;
}

char *canonical_path_anew(const char *path, struct stat &found)
{
    return look_and_learn(realpath(path, nullptr), path, found);
}

char *canonical_path_of(int fd, const char *path, struct stat &found)
{
    return look_and_learn(path_of_descriptor(fd), path, found);
}

char *canonical_path(const char *path, struct stat &found)
{
    const char *entry = entry_of(path);
    char *folder = entry ? folder_of(path, entry) : nullptr;
    char *recalled = folder ? recall(folder, entry) : nullptr;
    free(folder);
    if (recalled && lstat(recalled, &found) == 0 && !S_ISLNK(found.st_mode)) return recalled;
    free(recalled);
    return canonical_path_anew(path, found);
}

} // namespace sds::vol
