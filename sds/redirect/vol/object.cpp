#include "object.h"

#include <stdlib.h>

#include "error_stack.h"
#include "open_dataset.h"
#include "open_file.h"
#include "original_file.h"

namespace sds::vol
{

Object *wrap(Host &host, hid_t connector, void *under)
{
    if (!under) return nullptr;
    // Not calloc: that of glibc takes nothing from the thread's cache of freed memory, and objects
    // are opened and closed in their thousands.
    auto *object = static_cast<Object *>(malloc(sizeof(Object)));
    if (!object) return nullptr;
    *object = {};
    object->under = under;
    object->connector = connector;
    object->below = &host.class_of(connector);
    object->host = &host;
    // The native connector is held once by its host; counting it per object costs more than a read.
    if (connector != host.native) host.hdf5.H5Iinc_ref(connector);
    return object;
}

Object *wrap_beside(const Object &neighbour, void *under)
{
    Object *object = wrap(*neighbour.host, neighbour.connector, under);
    if (!object) return nullptr;
    if (neighbour.file) object->file = hold_file(neighbour.file);
    object->may_lack_path = neighbour.may_lack_path;
    return object;
}

void release(Object *object)
{
    const Host &host = *object->host;
    forget_dataset(*object);
    if (object->file) {
        after_close(object->file->original);
        release_file(object->file);
    }
    if (object->connector != host.native) {
        ErrorStackKeeper keep(host);
        host.hdf5.H5Idec_ref(object->connector);
    }
    free(object);
}

} // namespace sds::vol
