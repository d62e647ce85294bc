// Keeps what is on the HDF5 error stack across calls of public HDF5 functions.
//
// Every public function clears the stack on entry. Programs read it after a failed call (h5py
// takes errno from it, to tell FileNotFoundError from other errors), so a callback that cleans up
// after a failure must give back what the layer below has pushed.
#pragma once

#include "host.h"

namespace sds::vol
{

class ErrorStackKeeper
{
  public:
    explicit ErrorStackKeeper(const Host &host)
        : hdf5_(host.hdf5), saved_(host.hdf5.H5Eget_current_stack())
    {
    }
    ~ErrorStackKeeper()
    {
        if (saved_ >= 0) hdf5_.H5Eset_current_stack(saved_);
    }
    ErrorStackKeeper(const ErrorStackKeeper &) = delete;
    ErrorStackKeeper &operator=(const ErrorStackKeeper &) = delete;

    bool holds_errors() const { return saved_ >= 0 && hdf5_.H5Eget_num(saved_) > 0; }

    // Forget what was saved: what is on the stack now stays.
    void discard()
    {
        if (saved_ < 0) return;
        const hid_t current = hdf5_.H5Eget_current_stack();
        hdf5_.H5Eclose_stack(saved_);
        saved_ = current;
    }

  private:
    const Functions &hdf5_;
    hid_t saved_;
};

} // namespace sds::vol
