// Redirection: which reads a replica serves, and how.
#pragma once

#include "object.h"
#include "selection.h"

namespace sds::vol
{

struct OpenDataset;
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
bool is_collective(const Host &host, hid_t dxpl);

// What the table says of a dataset; nullptr where its reads are not redirected.
// type: the dataset's, which stays the caller's.
Redirection *find_redirection(const Host &host, const OpenDataset &dataset, hid_t type);
void release_redirection(Redirection *redirection);

// Fill the buffer from a replica where that is predicted to be cheaper than the original. Returns
// the replica's id; 0 where the original is to be read, which then overwrites the buffer.
int64_t serve_read(const Object &object, OpenDataset &dataset, const Selection &selection,
                   const ReadRequest &request);

} // namespace sds::vol
