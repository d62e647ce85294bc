#include "replica_dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "error_stack.h"
#include "library_context.h"
#include "object.h"
#include "open_dataset.h"
#include "replica.h"
#include "type_digest.h"

namespace sds::vol
{
namespace
{

uint64_t n_openings = 0;

void close_all(void *ending)
{
    Host &host = *static_cast<Host *>(ending);
    host.is_ending = true;
    close_replica_datasets(host);
}

// When HDF5 ends, it closes what has identifiers first, datatypes among them, which open datasets
// need to be closed. What has no identifier must be closed before.
bool will_close_in_time(const Host &host)
{
    Host &slot = host_at(host.slot);
    if (!slot.closes_replicas && host.hdf5.H5atclose)
        slot.closes_replicas = host.hdf5.H5atclose(close_all, &slot) >= 0;
    return slot.closes_replicas;
}

// A property list that is closed at the end.
class PropertyList
{
  public:
    PropertyList(const Host &host, hid_t list_class)
        : hdf5_(host.hdf5), id_(hdf5_.H5Pcreate(list_class))
    {
    }
    ~PropertyList()
    {
        if (id_ >= 0) hdf5_.H5Pclose(id_);
    }
    PropertyList(const PropertyList &) = delete;
    PropertyList &operator=(const PropertyList &) = delete;

    hid_t id() const { return id_; }

  private:
    const Functions &hdf5_;
    const hid_t id_;
};

// HDF5 shares what it knows of a file among those who open it with one driver: a program could
// then not open the replica itself for writing, or with another close degree. The log driver reads
// as the default one does, and logs nothing unless told to.
bool prepare_access(const Host &host, hid_t fapl)
{
    const Functions &hdf5 = host.hdf5;
    return fapl >= 0 && hdf5.H5Pset_vol(fapl, host.native, nullptr) >= 0 &&
           hdf5.H5Pset_file_locking(fapl, false, true) >= 0 &&
           (!hdf5.H5Pset_fapl_log || hdf5.H5Pset_fapl_log(fapl, nullptr, 0, 0) >= 0);
}

// A chunk is decoded once in a read, whose pieces are made of whole chunks, and chunk_cache.h keeps
// what the next ones may need.
bool forbid_cache(const Host &host, hid_t dapl)
{
    return dapl >= 0 && host.hdf5.H5Pset_chunk_cache(dapl, 1, 0, 1) >= 0;
}

// Damage must be found before a filter or the library meets it: every chunk's checksum is looked at
// first, and the metadata are those that carry checksums.
bool has_checksums(int fd)
{
    constexpr unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char begin[9];
    size_t have = 0;
    while (have < sizeof begin) {
        const ssize_t got = pread(fd, begin + have, sizeof begin - have, static_cast<off_t>(have));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        have += static_cast<size_t>(got);
    }
    return memcmp(begin, signature, sizeof signature) == 0 && begin[8] >= 2;
}

// What is wrong with the filters; nullptr where nothing is.
const char *check_filters(const Object &object, ChunkFilters &filters)
{
    const Functions &hdf5 = object.hdf5();
    const hid_t dcpl = creation_properties_of(object);
    if (dcpl < 0) return "the replica's dataset cannot be looked at";
    const char *problem = find_filters_of_replica(hdf5, dcpl, filters);
    hdf5.H5Pclose(dcpl);
    return problem;
}

// How the dataset differs from what the table says of it; nullptr where it does not.
const char *find_difference(const Object &object, const sds_table_dataset &dataset,
                            const sds_candidate &candidate, ChunkFilters &filters)
{
    sds_trace_dataset found;
    memset(&found, 0, sizeof found);
    const hid_t type = describe_stored(object, found);
    uint32_t crc = 0;
    const bool has_type = type >= 0 && type_crc32c(*object.host, type, crc);
    if (type >= 0) object.hdf5().H5Tclose(type);
    bool is_equal = has_type && crc == dataset.type_crc32c &&
                    found.element_bytes == dataset.element_bytes &&
                    found.storage == SDS_STORAGE_CHUNKED && found.rank == candidate.rank;
    for (int32_t axis = 0; is_equal && axis < candidate.rank; axis++)
        is_equal = found.extent[axis] == candidate.region_extent[candidate.order[axis]] &&
                   found.chunk[axis] == candidate.chunks.shape[axis];
    return is_equal ? check_filters(object, filters)
                    : "the replica is not what the table says of it";
}

const char *open_in(const Host &host, hid_t file, const sds_table_dataset &dataset,
                    const sds_candidate &candidate, ReplicaDataset &out)
{
    const Functions &hdf5 = host.hdf5;
    void *handle = nullptr;
    if (hdf5.H5Fget_vfd_handle(file, 0, &handle) < 0 || !handle)
        return "the replica's descriptor cannot be had";
    out.fd = static_cast<int *>(handle);
    // A program that has closed its standard output may still print.
    if (*out.fd <= STDERR_FILENO) return "the replica would take the place of a standard stream";
    fcntl(*out.fd, F_SETFD, FD_CLOEXEC);
    if (!is_unchanged(out, candidate.identity))
        return "the replica has changed since it was published";
    if (!has_checksums(*out.fd)) return "the replica's metadata have no checksums";

    const PropertyList access(host, *host.dataset_access);
    if (!forbid_cache(host, access.id())) return "the replica cannot be opened without a cache";
    const LibraryContext context(host);
    void *under_file = context.ok() ? hdf5.H5VLobject(file) : nullptr;
    if (!under_file) return "the program's HDF5 gives no access to the replica";
    H5VL_loc_params_t self;
    memset(static_cast<void *>(&self), 0, sizeof self);
    self.obj_type = H5I_FILE;
    self.type = H5VL_OBJECT_BY_SELF;
    out.object = hdf5.H5VLdataset_open(under_file, &self, host.native, dataset.path, access.id(),
                                       *host.default_dxpl, nullptr);
    if (!out.object) return "the replica's dataset cannot be opened";
    Object object = {};
    object.under = out.object;
    object.connector = host.native;
    object.below = &host.class_of(host.native);
    object.host = &host_at(host.slot);
    const char *problem = find_difference(object, dataset, candidate, out.filters);
    if (!problem) return nullptr;
    hdf5.H5VLdataset_close(out.object, host.native, *host.default_dxpl, nullptr);
    return problem;
}

} // namespace

const char *open_replica_dataset(const Host &host, const sds_table_dataset &dataset,
                                 const sds_candidate &candidate, ReplicaDataset &out)
{
    SilenceKeeper silence(host);
    ErrorStackKeeper keep(host);
    out = {};
    if (host.is_ending) return "HDF5 is being closed";
    if (!will_close_in_time(host)) return "the program's HDF5 does not tell when it ends";
    const PropertyList access(host, *host.file_access);
    if (!prepare_access(host, access.id())) return "the program's HDF5 cannot open replicas";
    const hid_t file = host.hdf5.H5Fopen(candidate.path, 0, access.id());
    if (file < 0) return "the replica cannot be opened by the program's HDF5";
    const char *problem = open_in(host, file, dataset, candidate, out);
    // The dataset keeps the file open.
    host.hdf5.H5Fclose(file);
    if (problem) {
        out = {};
    } else {
        out.host = &host;
        out.n_threads = 1;
        out.inode = candidate.identity.inode;
        out.opening = __atomic_add_fetch(&n_openings, 1, __ATOMIC_RELAXED);
    }
    return problem;
}

void close_replica_dataset(ReplicaDataset &replica)
{
    if (!replica.host) return;
    const Host &host = *replica.host;
    // Where the program has closed the descriptor, its number may be another file's by now: HDF5
    // is given one of ours to close.
    sds_identity now;
    if (sds_identity_of_fd(*replica.fd, &now, nullptr, nullptr) != SDS_OK ||
        now.inode != replica.inode)
        *replica.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    SilenceKeeper silence(host);
    ErrorStackKeeper keep(host);
    const LibraryContext context(host);
    if (context.ok())
        host.hdf5.H5VLdataset_close(replica.object, host.native, *host.default_dxpl, nullptr);
    replica = {};
}

bool is_unchanged(const ReplicaDataset &replica, const sds_identity &identity)
{
    sds_identity now;
    return sds_identity_of_fd(*replica.fd, &now, nullptr, nullptr) == SDS_OK &&
           sds_identity_equal(&now, &identity);
}

} // namespace sds::vol
