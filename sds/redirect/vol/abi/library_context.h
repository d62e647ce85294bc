// A fresh state of the host HDF5 for calls that SDS makes on its own account.
//
// HDF5 keeps the transfer properties of the public call that runs, and what it has looked up in
// them. Reads of a replica must neither see those of the program nor leave theirs behind.
#pragma once

#include "host.h"

namespace sds::vol
{

class LibraryContext
{
  public:
    explicit LibraryContext(const Host &host) : hdf5_(host.hdf5)
    {
        if (hdf5_.H5VLopen_lib_context && hdf5_.H5VLclose_lib_context)
            ok_ = hdf5_.H5VLopen_lib_context(&context_) >= 0;
        else if (hdf5_.H5VLstart_lib_state && hdf5_.H5VLfinish_lib_state)
            ok_ = hdf5_.H5VLstart_lib_state() >= 0;
    }
    ~LibraryContext()
    {
        if (!ok_) return;
        if (context_)
            hdf5_.H5VLclose_lib_context(context_);
        else
            hdf5_.H5VLfinish_lib_state();
    }
    LibraryContext(const LibraryContext &) = delete;
    LibraryContext &operator=(const LibraryContext &) = delete;

    bool ok() const { return ok_; }

  private:
    const Functions &hdf5_;
    void *context_ = nullptr; // of 2.x
    bool ok_ = false;
};

} // namespace sds::vol
