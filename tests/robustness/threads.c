/* Threads that read one dataset and open and close its file meanwhile, in each of the HDF5
 * libraries named, all in one process. Built with the thread sanitizer, it sees what the
 * connector's threads share: each library locks out its own threads alone.
 *
 * threads FILE N_THREADS N_ROUNDS STACK_BYTES LIBRARY... */
#include <dlfcn.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct library {
    hid_t (*open)(const char *, unsigned, hid_t);
    herr_t (*close)(hid_t);
    hid_t (*open_dataset)(hid_t, const char *, hid_t);
    herr_t (*close_dataset)(hid_t);
    hid_t (*get_space)(hid_t);
    hid_t (*create_space)(int, const hsize_t *, const hsize_t *);
    herr_t (*select)(hid_t, H5S_seloper_t, const hsize_t *, const hsize_t *, const hsize_t *,
                     const hsize_t *);
    herr_t (*close_space)(hid_t);
    herr_t (*read)(hid_t, hid_t, hid_t, hid_t, hid_t, void *);
    herr_t (*start)(void);
    hid_t *real64, *real32;
} library;

typedef struct reader {
    const library *of;
    unsigned seed;
    pthread_t thread;
    const char *failed; /* NULL: nothing */
} reader;

static const char *path;
static int n_rounds;

static void *symbol(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return found;
}

static library load(const char *name)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return (library){
        .open = symbol(handle, "H5Fopen"),
        .close = symbol(handle, "H5Fclose"),
        .open_dataset = symbol(handle, "H5Dopen2"),
        .close_dataset = symbol(handle, "H5Dclose"),
        .get_space = symbol(handle, "H5Dget_space"),
        .create_space = symbol(handle, "H5Screate_simple"),
        .select = symbol(handle, "H5Sselect_hyperslab"),
        .close_space = symbol(handle, "H5Sclose"),
        .read = symbol(handle, "H5Dread"),
        .start = symbol(handle, "H5open"),
        .real64 = symbol(handle, "H5T_NATIVE_DOUBLE_g"),
        .real32 = symbol(handle, "H5T_NATIVE_FLOAT_g"),
    };
}

static double value_at(int i, int j, int k)
{
    return (i * 14 + j) * 11 + k;
}

static const char *read_planes(const library *of, hid_t data, unsigned k)
{
    double plane[9][14];
    float half[9][14];
    const hsize_t start[3] = {0, 0, k}, count[3] = {9, 14, 1}, shape[2] = {9, 14};
    const hid_t space = of->get_space(data), memory = of->create_space(2, shape, NULL);
    const char *failed = NULL;
    if (of->select(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
        of->read(data, *of->real64, memory, space, H5P_DEFAULT, plane) < 0 ||
        of->read(data, *of->real32, memory, space, H5P_DEFAULT, half) < 0)
        failed = "a read failed";
    for (int i = 0; i < 9 && failed == NULL; i++)
        for (int j = 0; j < 14; j++)
            if (plane[i][j] != value_at(i, j, (int)k) || half[i][j] != (float)plane[i][j])
                failed = "a value is wrong";
    of->close_space(space);
    of->close_space(memory);
    return failed;
}

static void *run(void *argument)
{
    reader *self = argument;
    const library *of = self->of;
    hid_t data = -1;
    for (int round = 0; round < n_rounds && self->failed == NULL; round++) {
        const unsigned k = (unsigned)rand_r(&self->seed) % 11;
        if (round % 3 == 0) {
            const hid_t file = of->open(path, 0 /* read-only */, H5P_DEFAULT);
            if (data >= 0) of->close_dataset(data);
            data = of->open_dataset(file, "cube", H5P_DEFAULT);
            if (file < 0 || data < 0 || of->close(file) < 0) self->failed = "a file is not opened";
        }
        if (self->failed == NULL) self->failed = read_planes(of, data, k);
    }
    of->close_dataset(data);
    return NULL;
}

int main(int argc, char **argv)
{
    static library libraries[8];
    static reader readers[64];
    int failed = 0;
    if (argc < 6 || argc > 13) return 2;
    path = argv[1];
    const int n_threads = atoi(argv[2]), n_libraries = argc - 5;
    n_rounds = atoi(argv[3]);
    for (int i = 0; i < n_libraries; i++) {
        libraries[i] = load(argv[5 + i]);
        if (libraries[i].start() < 0) return 2;
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, (size_t)atol(argv[4])) != 0) return 2;
    for (int i = 0; i < n_threads && i < 64; i++) {
        readers[i] = (reader){&libraries[i % n_libraries], (unsigned)i, 0, NULL};
        if (pthread_create(&readers[i].thread, &attributes, run, &readers[i]) != 0) return 2;
    }
    for (int i = 0; i < n_threads && i < 64; i++) {
        pthread_join(readers[i].thread, NULL);
        if (readers[i].failed == NULL) continue;
        fprintf(stderr, "thread %d: %s\n", i, readers[i].failed);
        failed = 1;
    }
    return failed;
}
