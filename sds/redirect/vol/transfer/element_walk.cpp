#include "element_walk.h"

#include <stdlib.h>

namespace sds::vol
{
namespace
{

constexpr unsigned share_with_dataspace = 2; // H5S_SEL_ITER_SHARE_WITH_DATASPACE
constexpr size_t in_elements = 1;            // the size of one, in which offsets are counted

} // namespace

bool can_walk(const Host &host)
{
    return host.hdf5.H5Ssel_iter_create && host.hdf5.H5Ssel_iter_get_seq_list &&
           host.hdf5.H5Ssel_iter_close;
}

ElementWalk::ElementWalk(const Host &host, hid_t space, int64_t n_elements)
    : host_(host), iterator_(-1), n_left_(n_elements), n_listed_(0), at_(0),
      list_(static_cast<List *>(malloc(sizeof(List))))
{
    if (!list_) return;
    if (space == H5S_ALL) {
        list_->offset[0] = 0;
        list_->length[0] = static_cast<size_t>(n_elements);
        n_listed_ = 1;
    } else {
        iterator_ = host.hdf5.H5Ssel_iter_create(space, in_elements, share_with_dataspace);
    }
}

ElementWalk::~ElementWalk()
{
    if (iterator_ >= 0) host_.hdf5.H5Ssel_iter_close(iterator_);
    free(list_);
}

bool ElementWalk::fill()
{
    size_t n_elements = 0;
    at_ = n_listed_ = 0;
    return iterator_ >= 0 &&
           host_.hdf5.H5Ssel_iter_get_seq_list(iterator_, max_listed, SIZE_MAX, &n_listed_,
                                               &n_elements, list_->offset, list_->length) >= 0 &&
           n_listed_ > 0;
}

bool ElementWalk::next(int64_t most, ElementRun &out)
{
    if (n_left_ == 0 || !list_ || (at_ == n_listed_ && !fill())) return false;
    out.offset = static_cast<int64_t>(list_->offset[at_]);
    out.length = static_cast<int64_t>(list_->length[at_]);
    if (out.length > most) {
        out.length = most;
        list_->offset[at_] += static_cast<hsize_t>(most);
        list_->length[at_] -= static_cast<size_t>(most);
    } else {
        at_++;
    }
    n_left_ -= out.length;
    return true;
}

} // namespace sds::vol
