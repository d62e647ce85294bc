// A connector whose reads fail where a replica cannot be used.
#include "object.h"
#include "open_file.h"
#include "replica.h"
#include "vol_class.h"

namespace sds::vol
{

void sound_fill_dataset_class(H5VL_dataset_class_t &dataset_class);

namespace
{

decltype(H5VL_dataset_class_t::read) sound_read = nullptr;

bool has_bad_replica(void *dataset)
{
    const Handle object(dataset);
    const OpenReplica *replica = object->file ? object->file->replicas : nullptr;
    while (replica && !replica->problem)
        replica = replica->next;
    return replica;
}

herr_t read(size_t n, void *datasets[], hid_t memory_types[], hid_t memory_spaces[],
            hid_t file_spaces[], hid_t dxpl, void *buffers[], void **request)
{
    const herr_t result =
        sound_read(n, datasets, memory_types, memory_spaces, file_spaces, dxpl, buffers, request);
    return has_bad_replica(datasets[0]) ? -1 : result;
}

} // namespace

void fill_dataset_class(H5VL_dataset_class_t &dataset_class)
{
    sound_fill_dataset_class(dataset_class);
    sound_read = dataset_class.read;
    dataset_class.read = read;
}

} // namespace sds::vol
