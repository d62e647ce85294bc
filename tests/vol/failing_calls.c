/* Calls that HDF5 refuses, each of another kind; HDF5 prints why. */
#include <stdio.h>

#include "hdf5.h"

static herr_t visit(hid_t object, const char *name, const H5L_info2_t *info, void *data)
{
    (void)object, (void)name, (void)info, (void)data;
    return -1;
}

int main(int argc, char *argv[])
{
    const hsize_t extent[1] = {16}, far_away[1] = {99}, one[1] = {1}, two[1] = {2};
    const hsize_t first[1] = {0}, four[1] = {4};
    double values[16] = {0};
    if (argc < 3) return 2;
    const hid_t file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, "/d", H5P_DEFAULT);
    const hid_t attribute = H5Aopen(dataset, "a", H5P_DEFAULT);
    const hid_t group = H5Gopen2(file, "/", H5P_DEFAULT);
    const hid_t text = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, extent, NULL);
    const hid_t outside = H5Screate_simple(1, extent, NULL);
    const hid_t steps = H5Screate_simple(1, extent, NULL), names = H5Tenum_create(H5T_NATIVE_INT);
    const hssize_t moved[1] = {8};
    if (file < 0 || dataset < 0 || attribute < 0 || group < 0) return 3;

    H5Tenum_insert(names, "none", &(int){0});
    H5Sselect_hyperslab(steps, H5S_SELECT_SET, first, two, four, NULL);

    fprintf(stderr, "file\n");
    H5Fopen("/no/such/file", H5F_ACC_RDONLY, H5P_DEFAULT);
    H5Fopen(argv[2], H5F_ACC_RDONLY, H5P_DEFAULT); /* not HDF5 */
    H5Fcreate("/no/such/file", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    fprintf(stderr, "group\n");
    H5Gopen2(file, "/none", H5P_DEFAULT);
    H5Gcreate2(file, "/g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    fprintf(stderr, "dataset\n");
    H5Dopen2(file, "/none", H5P_DEFAULT);
    H5Dcreate2(file, "/e", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dread(dataset, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dread(dataset, names, steps, steps, H5P_DEFAULT, values);
    H5Dread(dataset, steps, steps, steps, H5P_DEFAULT, values);
    H5Dread(dataset, H5T_NATIVE_DOUBLE, dataset, steps, H5P_DEFAULT, values);
    H5Dread(dataset, H5T_NATIVE_DOUBLE, steps, names, H5P_DEFAULT, values);
    H5Soffset_simple(outside, moved);
    H5Dread(dataset, H5T_NATIVE_DOUBLE, space, outside, H5P_DEFAULT, values);
    H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dset_extent(dataset, far_away);
    fprintf(stderr, "attribute\n");
    H5Aopen(dataset, "none", H5P_DEFAULT);
    H5Aread(attribute, text, values);
    H5Awrite(attribute, H5T_NATIVE_INT, values);
    H5Adelete(dataset, "none");
    fprintf(stderr, "link\n");
    H5Ldelete(file, "/none", H5P_DEFAULT);
    H5Lcreate_soft("/d", file, "/soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lmove(file, "/none", file, "/other", H5P_DEFAULT, H5P_DEFAULT);
    H5Literate2(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, NULL);
    fprintf(stderr, "object\n");
    H5Oopen(file, "/none", H5P_DEFAULT);
    H5Ocopy(file, "/none", file, "/other", H5P_DEFAULT, H5P_DEFAULT);
    H5Topen2(file, "/d", H5P_DEFAULT);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, far_away, NULL, one, NULL);
    H5Dread(dataset, H5T_NATIVE_DOUBLE, space, space, H5P_DEFAULT, values);
    return 0;
}
