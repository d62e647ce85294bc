// The word that a parallel HDF5 leaves in the transfer properties of how it made a read. It is had
// for a read that a replica has served by giving HDF5 one of nothing: what it says of that is what
// it says of any independent read of the dataset into the type.
#pragma once

#include "redirect.h"

namespace sds::vol
{

struct StoredDataset; // open_dataset.h

bool leaves_word(const Host &host, hid_t dxpl);

// A space of the dataset's extent in which nothing is selected, to be closed; negative where it
// cannot be had.
hid_t select_nothing(const Host &host, const StoredDataset &stored);

// Have HDF5 leave word of a read that was served, where it leaves any. False where that cannot be
// had; then the original is to be read.
bool leave_word(const Object &object, const StoredDataset &stored, const ReadRequest &served);

} // namespace sds::vol
