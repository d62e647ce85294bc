#include "native_alias.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "decision_log.h"
#include "elf_image.h"
#include "fork.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

// How the class struct has begun in every version since there is one.
struct ClassHead {
    uint32_t version; // H5VL_VERSION
    int32_t value;
    const char *name;
};

constexpr uint32_t most_versions = 64;
constexpr char native_name[] = "native";
// More than the struct takes in any version: what follows it is never looked at.
constexpr size_t n_class_bytes = 1024;
// The native connector implements some 50 callbacks. Far fewer pointers to code mean that it is
// something else.
constexpr size_t fewest_callbacks = 32;
constexpr size_t n_callback_bytes = 640;

bool is_native_class(const Image &image, const ClassHead *head, size_t n_bytes)
{
    if (head->version >= most_versions || head->value != native_connector_value ||
        !image.holds(head->name, sizeof native_name, PF_R) ||
        memcmp(head->name, native_name, sizeof native_name) != 0)
        return false;
    const auto *words = reinterpret_cast<const void *const *>(head);
    size_t n_callbacks = 0;
    for (size_t i = 2; i < n_callback_bytes / sizeof *words && i < n_bytes / sizeof *words; i++)
        if (image.holds(words[i], 1, PF_X)) n_callbacks++;
    return n_callbacks >= fewest_callbacks;
}

// The struct of the native connector in a library's constant data, and how many bytes follow from
// there on. nullptr where there is none, or more than one.
const ClassHead *find_native_class(const Image &image, size_t &n_bytes)
{
    const ClassHead *found = nullptr;
    for (size_t i = 0; i < image.n_segments; i++) {
        const ElfW(Phdr) &segment = image.segments[i];
        if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_R)) continue;
        const uintptr_t begin = image.bias + segment.p_vaddr, end = begin + segment.p_filesz;
        for (uintptr_t at = (begin + 7) & ~uintptr_t{7}; at + sizeof(ClassHead) <= end; at += 8) {
            const auto *head = reinterpret_cast<const ClassHead *>(at);
            if (!is_native_class(image, head, end - at)) continue;
            if (found) return nullptr;
            found = head;
            n_bytes = end - at;
        }
    }
    return found;
}

struct Alias {
    Alias *next;
    uintptr_t bias;
    const ElfW(Phdr) * segments; // with the bias: which library it is for
    alignas(H5VL_class_t) unsigned char connector_class[n_class_bytes];
};

Alias *aliases = nullptr;
pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

// Called with the lock held.
const Alias *find_alias(const Image &image)
{
    const Alias *alias = aliases;
    while (alias && (alias->bias != image.bias || alias->segments != image.segments))
        alias = alias->next;
    return alias;
}

// Called with the lock held.
const Alias *add_alias(const Image &image)
{
    size_t n_bytes = 0;
    const ClassHead *native = find_native_class(image, n_bytes);
    if (!native) return nullptr;
    auto *alias = static_cast<Alias *>(calloc(1, sizeof(Alias)));
    if (!alias) return nullptr;
    memcpy(alias->connector_class, native, n_bytes < n_class_bytes ? n_bytes : n_class_bytes);
    auto *head = reinterpret_cast<ClassHead *>(alias->connector_class);
    head->value = connector_value;
    head->name = connector_name;
    // The end of the alias must not be taken for the end of the native connector.
    if (head->version == vol_version)
        reinterpret_cast<H5VL_class_t *>(alias->connector_class)->terminate = nullptr;
    alias->bias = image.bias;
    alias->segments = image.segments;
    alias->next = aliases;
    aliases = alias;
    return alias;
}

} // namespace

void renew_aliases()
{
    pthread_mutex_init(&making, nullptr);
}

const void *known_native_alias(const void *return_address)
{
    pthread_mutex_lock(&making);
    Image image = {};
    const Alias *alias = aliases && find_image(return_address, image) ? find_alias(image) : nullptr;
    pthread_mutex_unlock(&making);
    return alias ? alias->connector_class : nullptr;
}

const void *make_native_alias(const void *return_address, const char *reason)
{
    Image image = {};
    if (!find_image(return_address, image)) {
        log_decision("unbound", "", "", reason);
        return nullptr;
    }
    watch_forks();
    pthread_mutex_lock(&making);
    const Alias *alias = find_alias(image);
    if (!alias) alias = add_alias(image);
    pthread_mutex_unlock(&making);
    log_decision(alias ? "native" : "unbound", image.path, "", reason);
    return alias ? alias->connector_class : nullptr;
}

} // namespace sds::vol
