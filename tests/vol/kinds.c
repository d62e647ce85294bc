/* Reads planes of /cube, (18, 28, 22) doubles counting up, and ends in one of several ways.
 *
 *     kinds SOURCE close | left-open | library-close | twice | threads | turns | thread-turns
 *
 * turns: of /cube0 to /cube5, which hold the same, one after the other, and left open.
 *
 * Prints what is wrong, and what is open of files, datasets and groups before and after. */
#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { n_rows = 18, n_columns = 28, n_planes = 22, n_cubes = 6 };

static hid_t dataset_of(const char *path, hid_t *file)
{
    *file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    return H5Dopen2(*file, "/cube", H5P_DEFAULT);
}

static int read_plane(hid_t dataset, hsize_t k)
{
    static _Thread_local double plane[n_rows * n_columns];
    const hsize_t start[3] = {0, 0, k}, count[3] = {n_rows, n_columns, 1};
    const hsize_t flat[1] = {n_rows * n_columns};
    const hid_t selected = H5Dget_space(dataset), memory = H5Screate_simple(1, flat, NULL);
    H5Sselect_hyperslab(selected, H5S_SELECT_SET, start, NULL, count, NULL);
    memset(plane, 0, sizeof plane);
    int wrong = H5Dread(dataset, H5T_NATIVE_DOUBLE, memory, selected, H5P_DEFAULT, plane) < 0;
    for (int i = 0; i < n_rows * n_columns; i++)
        wrong += plane[i] != (double)(i * n_planes) + (double)k;
    H5Sclose(memory);
    H5Sclose(selected);
    return wrong;
}

static void print_open(void)
{
    const unsigned kinds = H5F_OBJ_ALL;
    printf("open: %d\n", (int)H5Fget_obj_count((hid_t)H5F_OBJ_ALL, kinds));
}

static void *read_planes(void *argument)
{
    long wrong = 0;
    for (hsize_t turn = 0; turn < 200; turn++)
        wrong += read_plane(*(hid_t *)argument, turn * 7 % n_planes);
    return (void *)wrong;
}

static int read_in_threads(hid_t *datasets, void *read(void *))
{
    pthread_t thread[4];
    long wrong = 0;
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, read, datasets);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(thread[i], &result);
        wrong += (long)result;
    }
    return (int)wrong;
}

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

static atomic_long longest_ns; /* of the reads, in which replicas are opened */

static int read_timed(hid_t dataset, hsize_t k)
{
    const long begun_ns = now_ns();
    const int wrong = read_plane(dataset, k);
    const long took_ns = now_ns() - begun_ns;
    long before_ns = atomic_load(&longest_ns);
    while (before_ns < took_ns && !atomic_compare_exchange_weak(&longest_ns, &before_ns, took_ns))
        ;
    return wrong;
}

/* Longer than a replica is kept open in vain, if opening it took as long as the longest read. */
static void nap(void)
{
    const long opening_ns = atomic_load(&longest_ns);
    const long ns = 25 * opening_ns < 150000000 ? 150000000 : 25 * opening_ns;
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

static int read_in_turn(const hid_t cubes[])
{
    int wrong = 0;
    for (int i = 0; i < 3 * n_cubes; i++) {
        if (i % 3 == 0) nap();
        wrong += read_timed(cubes[i % n_cubes], (hsize_t)i);
    }
    return wrong;
}

static void *read_any(void *argument)
{
    unsigned random = (unsigned)(size_t)&random;
    long wrong = 0;
    for (hsize_t turn = 0; turn < 200; turn++) {
        random = random * 1103515245 + 12345;
        if (turn % 40 == 39) nap();
        wrong += read_timed(((hid_t *)argument)[(random >> 16) % n_cubes], turn % n_planes);
    }
    return (void *)wrong;
}

static int read_cubes(const char *path, int in_threads)
{
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t cubes[n_cubes];
    for (int i = 0; i < n_cubes; i++) {
        char name[16];
        snprintf(name, sizeof name, "/cube%d", i);
        cubes[i] = H5Dopen2(file, name, H5P_DEFAULT);
    }
    return in_threads ? read_in_threads(cubes, read_any) : read_in_turn(cubes);
}

static void read_and_end(const char *path, const char *how)
{
    if (strcmp(how, "turns") == 0 || strcmp(how, "thread-turns") == 0) {
        printf("wrong: %d\n", read_cubes(path, how[1] == 'h'));
        print_open();
        printf("library: %d\n", H5close());
        return;
    }
    hid_t file, dataset = dataset_of(path, &file);
    int wrong = 0;
    for (hsize_t k = 0; k < n_planes; k++)
        wrong += read_plane(dataset, k);
    if (strcmp(how, "threads") == 0) wrong += read_in_threads(&dataset, read_planes);
    printf("wrong: %d\n", wrong);
    print_open();
    if (strcmp(how, "left-open") == 0) return;
    if (strcmp(how, "close") == 0 || strcmp(how, "threads") == 0) {
        printf("close: %d %d\n", H5Dclose(dataset), H5Fclose(file));
        print_open();
    }
    printf("library: %d\n", H5close());
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    read_and_end(argv[1], argv[2]);
    if (strcmp(argv[2], "twice") == 0) read_and_end(argv[1], "close");
    return 0;
}
