/* A library whose constructor calls HDF5 is loaded while another thread reads for the first time:
 * the loader's lock is held by one of them, HDF5's by the other.
 *
 * loading FILE LIBRARY
 * Built with -DCONSTRUCTOR it is that library. */
#ifdef CONSTRUCTOR

extern void construct(void);

__attribute__((constructor)) static void begin(void)
{
    construct();
}

#else

#include <dlfcn.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static atomic_int is_loading, is_reading;

/* Called by the constructor, once the other thread holds HDF5's lock or has read. */
void construct(void)
{
    atomic_store(&is_loading, 1);
    while (!atomic_load(&is_reading)) {}
    usleep(200000);
    H5Tclose(H5Tcopy(H5T_NATIVE_INT));
}

static void *load(void *library)
{
    return dlopen(library, RTLD_NOW);
}

int main(int n, char **given)
{
    if (n != 3) return 2;
    alarm(300); /* a deadlock ends here */
    const hid_t file = H5Fopen(given[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, "cube", H5P_DEFAULT);
    const hsize_t start[3] = {0, 0, 0}, count[3] = {9, 14, 1}, length = 9 * 14;
    const hid_t here = H5Screate_simple(1, &length, NULL), there = H5Dget_space(dataset);
    static double values[9 * 14];
    pthread_t thread;
    void *loaded = NULL;
    if (H5Sselect_hyperslab(there, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
        pthread_create(&thread, NULL, load, given[2]) != 0)
        return 2;
    while (!atomic_load(&is_loading)) {}
    atomic_store(&is_reading, 1);
    const herr_t ended = H5Dread(dataset, H5T_NATIVE_DOUBLE, here, there, H5P_DEFAULT, values);
    if (pthread_join(thread, &loaded) != 0 || loaded == NULL || ended < 0) return 1;
    for (hsize_t i = 0; i < length; i++)
        printf("%g\n", values[i]);
    return H5Dclose(dataset) < 0 || H5Fclose(file) < 0;
}

#endif
