// Stores references of HDF5 1.12's kind to a dataset of the same file and of another one, reads
// them back and follows them. What is stored of a reference tells whether HDF5 took the two files
// to be one.
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4 };

static hid_t make(hid_t file, const char *name, hid_t type, hid_t space)
{
    const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(created, 0);
    const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, created, H5P_DEFAULT);
    H5Pclose(created);
    return dataset;
}

int main(int argc, char **argv)
{
    const int n_open = argc > 1 ? atoi(argv[1]) : 0;
    const hsize_t extent = N;
    const hid_t space = H5Screate_simple(1, &extent, NULL);
    hid_t files[2], data[2];
    const char *names[] = {"here.h5", "there.h5"};
    const hid_t timeless = H5Pcreate(H5P_FILE_CREATE); // the same bytes in another second
    H5Pset_obj_track_times(timeless, 0);
    const int values[N] = {1, 2, 3, 4};
    for (int i = 0; i < 2; i++) {
        files[i] = H5Fcreate(names[i], H5F_ACC_TRUNC, timeless, H5P_DEFAULT);
        for (int k = 0; k < n_open; k++)
            H5Gopen2(files[i], "/", H5P_DEFAULT);
        data[i] = make(files[i], "data", H5T_STD_I32LE, space);
        H5Dwrite(data[i], H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    }
    H5R_ref_t references[N];
    memset(references, 0, sizeof references);
    H5Pclose(timeless);
    H5Rcreate_object(files[0], "data", H5P_DEFAULT, &references[0]);
    H5Rcreate_region(files[0], "data", space, H5P_DEFAULT, &references[1]);
    H5Rcreate_object(data[0], ".", H5P_DEFAULT, &references[2]);
    H5Rcreate_object(files[1], "data", H5P_DEFAULT, &references[3]);
    const hid_t stored = make(files[0], "references", H5T_STD_REF, space);
    printf("%d\n", H5Dwrite(stored, H5T_STD_REF, H5S_ALL, H5S_ALL, H5P_DEFAULT, references));
    for (int i = 0; i < N; i++)
        H5Rdestroy(&references[i]);
    printf("%d\n", H5Dread(stored, H5T_STD_REF, H5S_ALL, H5S_ALL, H5P_DEFAULT, references));
    for (int i = 0; i < N; i++) {
        char name[64] = "", file[64] = "";
        H5Rget_obj_name(&references[i], H5P_DEFAULT, name, sizeof name);
        H5Rget_file_name(&references[i], file, sizeof file);
        const hid_t object = H5Ropen_object(&references[i], H5P_DEFAULT, H5P_DEFAULT);
        printf("%s of %s: %d\n", name, file, (int)H5Iget_type(object));
        H5Oclose(object);
        H5Rdestroy(&references[i]);
    }
    H5Dclose(stored);
    H5Sclose(space);
    for (int i = 0; i < 2; i++) {
        H5Dclose(data[i]);
        H5Fclose(files[i]);
    }
    return 0;
}
