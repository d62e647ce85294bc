#include "table_entry.h"

#include "open_dataset.h"
#include "type_digest.h"

namespace sds::vol
{

const char *find_difference(const Host &host, const sds_table_dataset &expected,
                            const StoredDataset &found, hid_t type)
{
    uint32_t crc = 0;
    // Freshness is that of one file: what lies in others may change unseen.
    if (found.storage == SDS_STORAGE_VIRTUAL || found.storage == SDS_STORAGE_EXTERNAL ||
        found.storage == SDS_STORAGE_UNKNOWN)
        return "the dataset's values lie in other files";
    if (expected.rank != found.rank) return "the dataset's rank is not that of the table";
    for (int32_t axis = 0; axis < found.rank; axis++)
        if (expected.extent[axis] != found.extent[axis])
            return "the dataset's extent is not that of the table";
    if (expected.element_bytes != found.element_bytes || !type_crc32c(host, type, crc) ||
        crc != expected.type_crc32c)
        return "the dataset's type is not that of the table";
    return nullptr;
}

} // namespace sds::vol
