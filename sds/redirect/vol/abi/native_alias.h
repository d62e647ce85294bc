// What a library gets that the connector cannot serve: its own native connector, under the
// connector's name.
//
// A program whose environment names a connector that HDF5 cannot load is harmed: HDF5 2 ends with
// a segmentation fault at its first file, 1.12 and 1.14 print errors. So a library that is too
// old, too new, or hides its functions is given a copy of the class struct of its own native
// connector. The program then runs as without SDS, and nothing of SDS is in between.
#pragma once

namespace sds::vol
{

// What was made before for the library that owns the code at this address; nullptr if nothing.
const void *known_native_alias(const void *return_address);

// In the child of a fork, as of hosts.
void renew_aliases();

// A class struct for the library that owns the code at this address, of that library's own
// version; nullptr where its native connector is not found. Logs which, with the reason why the
// library is not served.
const void *make_native_alias(const void *return_address, const char *reason);

} // namespace sds::vol
