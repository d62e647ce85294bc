/* Worker of connector_cost.py: does what is to be timed at command, so that workers in different
 * environments take turns.
 *
 *     connector_cost FILE
 *
 * Each line of standard input, "WORK N", is answered by a line "elapsed_ns processor_ns". Work
 * "turn100" is to read 100 datasets in turn; likewise for other numbers. Work "small" goes on to
 * the next N of the files FILE.d/00000.h5, FILE.d/00001.h5, ...
 */
#include <hdf5.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS 1000 /* of dataset "rows", 64 elements each */
#define ROW_ELEMENTS 64
#define READ_ELEMENTS 8
#define GROUP_DATASETS 1000 /* of group "many": "0000" and on */
#define CUBE_X 128          /* of dataset "cube", float32 */
#define CUBE_Y 128
#define SMALL_ELEMENTS 256 /* of dataset "d" of each small file */
#define SLAB_Z 256         /* of which so much is read across its grain: 16 MiB */

typedef struct worker {
    const char *path;
    hid_t file;
    hid_t rows;
    hid_t rows_space;
    hid_t memory_space;
    long n_in_turn;
} worker;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void require(int is_so, const char *what)
{
    if (is_so) return;
    fprintf(stderr, "connector_cost: %s failed\n", what);
    exit(1);
}

static void read_elements(const worker *self, long n)
{
    const hsize_t count[2] = {1, READ_ELEMENTS};
    double element[READ_ELEMENTS];
    for (long i = 0; i < n; i++) {
        const hsize_t start[2] = {(hsize_t)(i % ROWS), READ_ELEMENTS};
        H5Sselect_hyperslab(self->rows_space, H5S_SELECT_SET, start, NULL, count, NULL);
        const herr_t status = H5Dread(self->rows, H5T_NATIVE_DOUBLE, self->memory_space,
                                      self->rows_space, H5P_DEFAULT, element);
        require(status >= 0 && element[1] == (double)(start[0] * ROW_ELEMENTS + start[1] + 1),
                "H5Dread");
    }
}

static void open_datasets(const worker *self, long n)
{
    for (long i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "many/%04ld", i % GROUP_DATASETS);
        const hid_t dataset = H5Dopen2(self->file, name, H5P_DEFAULT);
        require(dataset >= 0 && H5Dclose(dataset) >= 0, "H5Dopen2");
    }
}

/* Datasets that stay open: opened by the round before those that are timed. */
static struct {
    long n;
    hid_t *dataset;
} in_turn;

static void close_in_turn(void)
{
    for (long i = 0; i < in_turn.n; i++)
        H5Dclose(in_turn.dataset[i]);
    free(in_turn.dataset);
    in_turn.dataset = NULL;
    in_turn.n = 0;
}

static void open_in_turn(const worker *self, long n)
{
    if (in_turn.n == n) return;
    close_in_turn();
    in_turn.dataset = calloc((size_t)n, sizeof *in_turn.dataset);
    require(in_turn.dataset != NULL, "calloc");
    for (in_turn.n = 0; in_turn.n < n; in_turn.n++) {
        char name[32];
        snprintf(name, sizeof name, "many/%04ld", in_turn.n % GROUP_DATASETS);
        in_turn.dataset[in_turn.n] = H5Dopen2(self->file, name, H5P_DEFAULT);
        require(in_turn.dataset[in_turn.n] >= 0, "H5Dopen2");
    }
}

static void read_in_turn(const worker *self, long n)
{
    double element[4];
    open_in_turn(self, self->n_in_turn);
    for (long i = 0; i < n; i++)
        require(H5Dread(in_turn.dataset[i % in_turn.n], H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL,
                        H5P_DEFAULT, element) >= 0 &&
                    element[3] == 3,
                "H5Dread");
}

static void ask_for_attribute(const worker *self, long n)
{
    for (long i = 0; i < n; i++)
        require(H5Aexists(self->rows, i % 2 ? "units" : "missing") == i % 2, "H5Aexists");
}

static void open_files(const worker *self, long n)
{
    for (long i = 0; i < n; i++) {
        const hid_t file = H5Fopen(self->path, H5F_ACC_RDONLY, H5P_DEFAULT);
        require(file >= 0 && H5Fclose(file) >= 0, "H5Fopen");
    }
}

/* Files that nobody has opened before. */
static void read_small_files(const worker *self, long n)
{
    static long next;
    char path[4096];
    double values[SMALL_ELEMENTS];
    for (long i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s.d/%05ld.h5", self->path, next++);
        const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
        const hid_t dataset = H5Dopen2(file, "d", H5P_DEFAULT);
        require(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0 &&
                    values[SMALL_ELEMENTS - 1] == SMALL_ELEMENTS - 1,
                "H5Dread");
        require(H5Dclose(dataset) >= 0 && H5Fclose(file) >= 0, "H5Fclose");
    }
}

/* A plane across the grain of a file that is opened for it. */
static void open_and_read_planes(const worker *self, long n)
{
    const hsize_t start[3] = {0}, count[3] = {CUBE_X, CUBE_Y, 1};
    const hid_t memory = H5Screate_simple(3, count, NULL);
    static float plane[CUBE_X * CUBE_Y];
    for (long i = 0; i < n; i++) {
        const hid_t file = H5Fopen(self->path, H5F_ACC_RDONLY, H5P_DEFAULT);
        const hid_t cube = H5Dopen2(file, "cube", H5P_DEFAULT);
        const hid_t space = H5Dget_space(cube);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        require(H5Dread(cube, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, plane) >= 0 &&
                    plane[1] == plane[0] + 512,
                "H5Dread");
        require(H5Sclose(space) >= 0 && H5Dclose(cube) >= 0 && H5Fclose(file) >= 0, "H5Fclose");
    }
    H5Sclose(memory);
}

static void read_slabs(const worker *self, long n)
{
    const hsize_t start[3] = {0}, count[3] = {CUBE_X, CUBE_Y, SLAB_Z};
    const hid_t cube = H5Dopen2(self->file, "cube", H5P_DEFAULT);
    const hid_t space = H5Dget_space(cube);
    const hid_t memory = H5Screate_simple(3, count, NULL);
    float *slab = malloc(sizeof *slab * CUBE_X * CUBE_Y * SLAB_Z);
    require(slab && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0,
            "H5Sselect_hyperslab");
    for (long i = 0; i < n; i++)
        require(H5Dread(cube, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, slab) >= 0 &&
                    slab[SLAB_Z] == slab[0] + 2 * SLAB_Z,
                "H5Dread");
    free(slab);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(cube);
}

static const struct {
    const char *name;
    void (*run)(const worker *self, long n);
} works[] = {
    {"read", read_elements},       {"open", open_datasets},
    {"exists", ask_for_attribute}, {"file", open_files},
    {"slab", read_slabs},          {"turn", read_in_turn},
    {"small", read_small_files},   {"plane", open_and_read_planes},
};

static void begin(worker *self)
{
    const hsize_t n_elements = READ_ELEMENTS;
    self->file = H5Fopen(self->path, H5F_ACC_RDONLY, H5P_DEFAULT);
    require(self->file >= 0, "H5Fopen");
    self->rows = H5Dopen2(self->file, "rows", H5P_DEFAULT);
    self->rows_space = H5Dget_space(self->rows);
    self->memory_space = H5Screate_simple(1, &n_elements, NULL);
    require(self->rows >= 0 && self->rows_space >= 0 && self->memory_space >= 0, "H5Dopen2");
}

static void end(const worker *self)
{
    close_in_turn();
    H5Sclose(self->memory_space);
    H5Sclose(self->rows_space);
    H5Dclose(self->rows);
    H5Fclose(self->file);
}

int main(int argc, char *argv[])
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    char work[16];
    long n;
    worker self = {.path = argv[1]};
    int is_open = 0;
    while (scanf("%15s %ld", work, &n) == 2) {
        size_t i = 0;
        if (strncmp(work, "turn", 4) == 0) {
            self.n_in_turn = atol(work + 4);
            require(self.n_in_turn > 0, work);
            work[4] = '\0';
        }
        while (i < sizeof works / sizeof *works && strcmp(works[i].name, work) != 0)
            i++;
        require(i < sizeof works / sizeof *works, work);
        /* A file that is open already is opened in no time: these hold none. */
        const int needs_open = works[i].run != open_files && works[i].run != read_small_files &&
                               works[i].run != open_and_read_planes;
        if (needs_open && !is_open) begin(&self);
        if (!needs_open && is_open) end(&self);
        is_open = needs_open;
        const int64_t processor_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        const int64_t begun_ns = clock_ns(CLOCK_MONOTONIC);
        works[i].run(&self, n);
        printf("%lld %lld\n", (long long)(clock_ns(CLOCK_MONOTONIC) - begun_ns),
               (long long)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - processor_ns));
        fflush(stdout);
    }
    if (is_open) end(&self);
    return 0;
}
