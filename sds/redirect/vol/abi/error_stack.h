// Keeps what is on the HDF5 error stack across calls of public HDF5 functions.
//
// Every public function clears the stack on entry. Programs read it after a failed call (h5py
// takes errno from it, to tell FileNotFoundError from other errors), so a callback that cleans up
// after a failure must give back what the layer below has pushed.
#pragma once

#include "host.h"

namespace sds::vol
{

// Taking the stack costs some thousand instructions, so that an empty one, which nearly every call
// finds, is not taken: what is there at the end is dropped.
class ErrorStackKeeper
{
  public:
    explicit ErrorStackKeeper(const Host &host) : hdf5_(host.hdf5), saved_(take()) {}
    ~ErrorStackKeeper()
    {
        if (saved_ >= 0)
            hdf5_.H5Eset_current_stack(saved_);
        else
            drop(take());
    }
    ErrorStackKeeper(const ErrorStackKeeper &) = delete;
    ErrorStackKeeper &operator=(const ErrorStackKeeper &) = delete;

    bool holds_errors() const { return saved_ >= 0; }

    // Forget what was saved: what is on the stack now stays.
    void discard()
    {
        drop(saved_);
        saved_ = take();
    }

  private:
    static constexpr hid_t current = 0; // H5E_DEFAULT

    // What is on the stack, which is empty then; negative where nothing was.
    hid_t take() const { return hdf5_.H5Eget_num(current) > 0 ? hdf5_.H5Eget_current_stack() : -1; }
    void drop(hid_t stack) const
    {
        if (stack >= 0) hdf5_.H5Eclose_stack(stack);
    }

    const Functions &hdf5_;
    hid_t saved_;
};

// Keeps HDF5 from printing errors where SDS asks for what may well not be there: a C program has
// every public function that fails print its errors, which it would not have seen without SDS.
class SilenceKeeper
{
  public:
    explicit SilenceKeeper(const Host &host) : hdf5_(host.hdf5)
    {
        unsigned is_v2 = 1;
        hdf5_.H5Eauto_is_v2(default_stack, &is_v2);
        is_v1_ = !is_v2;
        if (is_v1_ && hdf5_.H5Eget_auto1 && hdf5_.H5Eset_auto1) {
            if (hdf5_.H5Eget_auto1(&print_, &data_) >= 0) hdf5_.H5Eset_auto1(nullptr, nullptr);
        } else if (!is_v1_ && hdf5_.H5Eget_auto2(default_stack, &print_, &data_) >= 0) {
            hdf5_.H5Eset_auto2(default_stack, nullptr, nullptr);
        }
    }
    ~SilenceKeeper()
    {
        if (!print_) return;
        if (is_v1_)
            hdf5_.H5Eset_auto1(print_, data_);
        else
            hdf5_.H5Eset_auto2(default_stack, print_, data_);
    }
    SilenceKeeper(const SilenceKeeper &) = delete;
    SilenceKeeper &operator=(const SilenceKeeper &) = delete;

  private:
    static constexpr hid_t default_stack = 0; // H5E_DEFAULT
    const Functions &hdf5_;
    void (*print_)(void) = nullptr; // whichever version's: only kept
    void *data_ = nullptr;
    bool is_v1_;
};

} // namespace sds::vol
