// Datasets.
#include <stdlib.h>

#include "object.h"
#include "vol_class.h"

namespace sds::vol
{
namespace
{

// The objects below those of a multi-dataset call; on the stack for the usual one.
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

void *create(void *object, const H5VL_loc_params_t *location, const char *name, hid_t lcpl,
             hid_t type, hid_t space, hid_t dcpl, hid_t dapl, hid_t dxpl, void **)
{
    const Object &self = *as_object(object);
    return wrap_beside(self, self.hdf5().H5VLdataset_create(self.under, location, self.connector,
                                                            name, lcpl, type, space, dcpl, dapl,
                                                            dxpl, nullptr));
}

void *open(void *object, const H5VL_loc_params_t *location, const char *name, hid_t dapl,
           hid_t dxpl, void **)
{
    const Object &self = *as_object(object);
    return wrap_beside(self, self.hdf5().H5VLdataset_open(self.under, location, self.connector,
                                                          name, dapl, dxpl, nullptr));
}

herr_t read(size_t n, void *datasets[], hid_t memory_types[], hid_t memory_spaces[],
            hid_t file_spaces[], hid_t dxpl, void *buffers[], void **)
{
    const Object &self = *as_object(datasets[0]);
    UnderObjects below(n, datasets);
    if (!below.ok()) return -1;
    return self.hdf5().H5VLdataset_read(n, below.array(), self.connector, memory_types,
                                        memory_spaces, file_spaces, dxpl, buffers, nullptr);
}

herr_t write(size_t n, void *datasets[], hid_t memory_types[], hid_t memory_spaces[],
             hid_t file_spaces[], hid_t dxpl, const void *buffers[], void **)
{
    const Object &self = *as_object(datasets[0]);
    UnderObjects below(n, datasets);
    if (!below.ok()) return -1;
    return self.hdf5().H5VLdataset_write(n, below.array(), self.connector, memory_types,
                                         memory_spaces, file_spaces, dxpl, buffers, nullptr);
}

herr_t get(void *dataset, H5VL_dataset_get_args_t *args, hid_t dxpl, void **)
{
    const Object &self = *as_object(dataset);
    return self.hdf5().H5VLdataset_get(self.under, self.connector, args, dxpl, nullptr);
}

herr_t specific(void *dataset, H5VL_dataset_specific_args_t *args, hid_t dxpl, void **)
{
    const Object &self = *as_object(dataset);
    return self.hdf5().H5VLdataset_specific(self.under, self.connector, args, dxpl, nullptr);
}

herr_t optional(void *dataset, H5VL_optional_args_t *args, hid_t dxpl, void **)
{
    const Object &self = *as_object(dataset);
    return self.hdf5().H5VLdataset_optional(self.under, self.connector, args, dxpl, nullptr);
}

herr_t close(void *dataset, hid_t dxpl, void **)
{
    Object *self = as_object(dataset);
    const herr_t result =
        self->hdf5().H5VLdataset_close(self->under, self->connector, dxpl, nullptr);
    if (result >= 0) release(self);
    return result;
}

} // namespace

void fill_dataset_class(H5VL_dataset_class_t &dataset_class)
{
    dataset_class = {create, open, read, write, get, specific, optional, close};
}

} // namespace sds::vol
