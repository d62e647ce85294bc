// Object tokens: passed on. Without these, HDF5 compares tokens byte by byte, which native files
// happen to allow, so that no suite of HDF5's own notices; tests/vol/test_pass_through.py does.
#include "object.h"
#include "pass_on.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

herr_t compare(void *object, const H5O_token_t *left, const H5O_token_t *right, int *order)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    return pass_on(self, self.below->token_cls.cmp, self.hdf5().H5VLtoken_cmp, left, right, order);
}

herr_t to_text(void *object, H5I_type_t type, const H5O_token_t *token, char **text)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    const auto direct = self.below->token_cls.to_str;
    return direct ? direct(self.under, type, token, text)
                  : self.hdf5().H5VLtoken_to_str(self.under, type, self.connector, token, text);
}

herr_t from_text(void *object, H5I_type_t type, const char *text, H5O_token_t *token)
{
    const Handle self_handle(object);
    const Object &self = *self_handle;
    const auto direct = self.below->token_cls.from_str;
    return direct ? direct(self.under, type, text, token)
                  : self.hdf5().H5VLtoken_from_str(self.under, type, self.connector, text, token);
}

} // namespace

void fill_token_class(H5VL_token_class_t &token_class)
{
    token_class = {compare, to_text, from_text};
}

} // namespace sds::vol
