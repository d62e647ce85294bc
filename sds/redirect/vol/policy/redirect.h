// Redirection: which reads a replica serves, and how.
#pragma once

#include "branch.h"
#include "object.h"
#include "selection.h"

namespace sds::vol
{

struct OpenDataset;
struct OwnChunks;
struct Redirection;

// One H5Dread of one dataset, as the program asked for it.
struct ReadRequest {
    hid_t memory_type;
    hid_t memory_space;
    hid_t file_space;
    hid_t dxpl;
    void *buffer;
};

// True for a collective MPI transfer.
bool asks_for_collective(const Host &host, hid_t dxpl);
inline bool is_collective(const Host &host, hid_t dxpl)
{
    return seldom(host.hdf5.H5Pget_dxpl_mpio) && asks_for_collective(host, dxpl);
}

// What else than HDF5 may read a dataset: replicas that the file's table names, and the engine, its
// contiguous original. nullptr where HDF5 alone does. type: the dataset's, which stays the
// caller's.
Redirection *find_redirection(const Object &object, const OpenDataset &dataset, hid_t type);
void release_redirection(Redirection *redirection);

// The chunks that the core may decode; nullptr where there are none.
OwnChunks *own_chunks_of(const OpenDataset &dataset);

bool has_own_chunks(const OpenDataset &dataset);
// Whether anything but HDF5 may still read it.
bool may_be_served(const OpenDataset &dataset);

// Whether a table names any.
bool has_replicas(const OpenDataset &dataset);

// How a replica in shadow took part in a read. It is dealt once: a replica that serves a share of
// its reads is chosen, and then either serves or leaves the read alone.
struct Deal {
    bool is_done;
    int64_t left_by; // id of the replica that left it alone; 0: none did
};

// Fill the buffer from a replica, or from the original by the engine, where that is predicted to be
// cheaper. Returns the replica's id, or SDS_SERVED_BY_ENGINE; 0 where HDF5 is to read the original,
// which then overwrites the buffer.
int64_t serve_read(const Object &object, OpenDataset &dataset, const Selection &selection,
                   const ReadRequest &request, Deal &deal);

} // namespace sds::vol
