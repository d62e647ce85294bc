// The objects below those of one call on several datasets.
#pragma once

#include <stdlib.h>

#include "object.h"

namespace sds::vol
{

// On the stack for the usual one.
class UnderObjects
{
  public:
    UnderObjects(size_t n, void *objects[])
        : many_(n == 1 ? nullptr : static_cast<void **>(malloc(n * sizeof(void *)))), one_(nullptr)
    {
        void **out = array();
        ok_ = n == 1 || many_;
        for (size_t i = 0; ok_ && i < n; i++)
            out[i] = under(objects[i]);
    }
    ~UnderObjects() { free(many_); }
    UnderObjects(const UnderObjects &) = delete;
    UnderObjects &operator=(const UnderObjects &) = delete;

    bool ok() const { return ok_; }
    void **array() { return many_ ? many_ : &one_; }

  private:
    void **many_;
    void *one_;
    bool ok_;
};

} // namespace sds::vol
