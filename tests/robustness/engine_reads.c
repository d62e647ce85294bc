/* Reads an original across the grain while calls on it fail, one at each call in turn.
 *
 * usage: engine_reads FILE CALLS ERROR [cold]. Element n of /cube is n. Prints how often a call
 * failed in a read that succeeded, and in one that did not. */
#include <dlfcn.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 64
#define POINTS 200
#define MOST (N * N * 3)

typedef void arm(const char *calls, const char *part, long after, long n, int error);
typedef long disarm(void);

typedef struct {
    const char *name;
    int is_float;  /* in memory */
    int is_spread; /* in memory: every second element */
    hsize_t start[3], stride[3], count[3];
} box;

static const box boxes[] = {
    {"plane", 0, 0, {0, 0, 5}, {1, 1, 1}, {N, N, 1}},
    {"line", 0, 0, {0, 7, 9}, {1, 1, 1}, {N, 1, 1}},
    {"strided", 0, 0, {1, 0, 3}, {3, 2, 11}, {20, 30, 5}},
    {"converted", 1, 0, {0, 0, 8}, {1, 1, 1}, {N, N, 1}},
    {"spread", 0, 1, {0, 3, 0}, {1, 1, 32}, {N, 1, 2}},
    {"spread and converted", 1, 1, {0, 0, 1}, {1, 4, 32}, {N, 16, 2}},
};

static double memory[2 * MOST];

static void fail(const char *what)
{
    printf("wrong: %s\n", what);
    exit(1);
}

static double value_at(int is_float, size_t place)
{
    float single;
    if (!is_float) return memory[place];
    memcpy(&single, (const char *)memory + place * sizeof single, sizeof single);
    return single;
}

static hid_t space_in_memory(hsize_t n, int is_spread)
{
    const hsize_t places = is_spread ? 2 * n : n, start = 0, stride = 2;
    hid_t space = H5Screate_simple(1, &places, NULL);
    if (is_spread) H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &n, NULL);
    return space;
}

/* False where HDF5 says so; anything else has to be right. */
static int read_box(hid_t data, const box *of)
{
    const hsize_t n = of->count[0] * of->count[1] * of->count[2];
    hid_t chosen = H5Dget_space(data), into = space_in_memory(n, of->is_spread);
    H5Sselect_hyperslab(chosen, H5S_SELECT_SET, of->start, of->stride, of->count, NULL);
    memset(memory, 0, sizeof memory);
    const herr_t status = H5Dread(data, of->is_float ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, into,
                                  chosen, H5P_DEFAULT, memory);
    H5Sclose(into);
    H5Sclose(chosen);
    if (status < 0) return 0;
    size_t at = 0;
    for (hsize_t i = 0; i < of->count[0]; i++)
        for (hsize_t j = 0; j < of->count[1]; j++)
            for (hsize_t k = 0; k < of->count[2]; k++) {
                const hsize_t x = of->start[0] + i * of->stride[0];
                const hsize_t y = of->start[1] + j * of->stride[1];
                const hsize_t z = of->start[2] + k * of->stride[2];
                if (value_at(of->is_float, at) != (double)((x * N + y) * N + z)) fail(of->name);
                at++;
                if (of->is_spread && value_at(of->is_float, at++) != 0) fail("a gap");
            }
    return 1;
}

static int read_points(hid_t data)
{
    static hsize_t points[POINTS][3];
    const hsize_t n = POINTS;
    for (hsize_t i = 0; i < n; i++)
        for (int axis = 0; axis < 3; axis++)
            points[i][axis] = (i * (29 + 8 * (hsize_t)axis) + 11 * i * i) % N;
    hid_t chosen = H5Dget_space(data), into = H5Screate_simple(1, &n, NULL);
    H5Sselect_elements(chosen, H5S_SELECT_SET, POINTS, &points[0][0]);
    const herr_t status = H5Dread(data, H5T_NATIVE_DOUBLE, into, chosen, H5P_DEFAULT, memory);
    H5Sclose(into);
    H5Sclose(chosen);
    if (status < 0) return 0;
    for (hsize_t i = 0; i < n; i++)
        if (memory[i] != (double)((points[i][0] * N + points[i][1]) * N + points[i][2]))
            fail("points");
    return 1;
}

static void drop(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

int main(int argc, char **argv)
{
    const size_t n_boxes = sizeof boxes / sizeof *boxes;
    arm *fault_arm = (arm *)dlsym(RTLD_DEFAULT, "fault_arm");
    disarm *fault_disarm = (disarm *)dlsym(RTLD_DEFAULT, "fault_disarm");
    if (argc < 4 || fault_arm == NULL || fault_disarm == NULL) return 2;
    long n_borne = 0, n_failed = 0;
    for (size_t which = 0; which <= n_boxes; which++)
        for (long after = 0;; after++) {
            hid_t file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
            hid_t data = H5Dopen2(file, "/cube", H5P_DEFAULT);
            box first = {"first", 0, 0, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}};
            if (!read_box(data, &first)) fail("the first element");
            if (argc > 4) drop(argv[1]);
            fault_arm(argv[2], argv[1], after, 1, atoi(argv[3]));
            const int is_read = which < n_boxes ? read_box(data, &boxes[which]) : read_points(data);
            const long struck = fault_disarm();
            H5Dclose(data);
            H5Fclose(file);
            if (struck == 0 && !is_read) fail("it fails by itself");
            if (struck == 0) break;
            *(is_read ? &n_borne : &n_failed) += 1;
        }
    printf("%ld %ld\n", n_borne, n_failed);
    return 0;
}
