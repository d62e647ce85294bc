// What a table says of a dataset, against the dataset as it is.
#pragma once

#include "host.h"
#include "sds/table_format.h"

namespace sds::vol
{

struct StoredDataset;

// How the table's description differs from the dataset; nullptr where it does not. type: of the
// dataset's elements.
const char *find_difference(const Host &host, const sds_table_dataset &expected,
                            const StoredDataset &found, hid_t type);

} // namespace sds::vol
