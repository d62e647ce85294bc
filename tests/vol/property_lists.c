/* Reads through property lists that count what HDF5 does with them: elements and fill values of
 * variable length whose memory the program gives out, and lists with a property of the program's
 * own.
 *
 *     property_lists FILE CUBE
 *
 * FILE is written anew; CUBE has a dataset "cube" of doubles. Prints one line per read:
 * allocations, bytes, and blocks that were not given back; at the end, how often properties were
 * copied, asked for, and closed. A block that is given back and was never given out ends the
 * program.
 */
#include <hdf5.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 6

typedef struct pair {
    int number;
    char *text;
} pair;

typedef struct nest {
    double number;
    hvl_t words; /* of texts */
    pair two[2];
} nest;

/* ---- memory that is counted */

typedef struct memory {
    long allocations;
    long bytes;
    long live;
} memory;

static const uint64_t given_out = UINT64_C(0x5d5c0ffee5d5c0ff);

static void require(int is_so, const char *what)
{
    if (is_so) return;
    printf("%s failed\n", what);
    fflush(stdout);
    abort();
}

static void *allocate(size_t n, void *data)
{
    memory *counts = data;
    uint64_t *block = malloc(n + 16);
    require(block != NULL, "malloc");
    block[0] = given_out;
    counts->allocations++;
    counts->bytes += (long)n;
    counts->live++;
    return block + 2;
}

static void release(void *given, void *data)
{
    memory *counts = data;
    if (given == NULL) return;
    uint64_t *block = (uint64_t *)given - 2;
    require(block[0] == given_out, "giving back a block of this program");
    block[0] = 0;
    counts->live--;
    free(block);
}

/* ---- a property that is counted */

static struct {
    long copied, asked, closed;
} property;

static herr_t on_copy(const char *name, size_t n, void *value)
{
    (void)name, (void)n, (void)value;
    property.copied++;
    return 0;
}

static herr_t on_get(hid_t list, const char *name, size_t n, void *value)
{
    (void)list, (void)name, (void)n, (void)value;
    property.asked++;
    return 0;
}

static herr_t on_close(const char *name, size_t n, void *value)
{
    (void)name, (void)n, (void)value;
    property.closed++;
    return 0;
}

static hid_t counted_list(hid_t class)
{
    int value = 1;
    const hid_t list = H5Pcreate(class);
    require(list >= 0 && H5Pinsert2(list, "counted", sizeof value, &value, NULL, on_get, NULL,
                                    on_copy, NULL, on_close) >= 0,
            "H5Pinsert2");
    return list;
}

/* ---- datasets */

enum { TEXTS, WORDS, PAIRS, NESTS, N_TYPES };
enum { CONTIGUOUS, CHUNKED, DEFLATED, COMPACT, N_LAYOUTS };

static hid_t text_type(void)
{
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    return text;
}

static hid_t pair_type(void)
{
    const hid_t text = text_type(), type = H5Tcreate(H5T_COMPOUND, sizeof(pair));
    H5Tinsert(type, "number", HOFFSET(pair, number), H5T_NATIVE_INT);
    H5Tinsert(type, "text", HOFFSET(pair, text), text);
    H5Tclose(text);
    return type;
}

static hid_t nest_type(void)
{
    const hsize_t two = 2;
    const hid_t text = text_type(), words = H5Tvlen_create(text), one = pair_type();
    const hid_t both = H5Tarray_create2(one, 1, &two);
    const hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(nest));
    H5Tinsert(type, "number", HOFFSET(nest, number), H5T_NATIVE_DOUBLE);
    H5Tinsert(type, "words", HOFFSET(nest, words), words);
    H5Tinsert(type, "two", HOFFSET(nest, two), both);
    H5Tclose(text);
    H5Tclose(words);
    H5Tclose(one);
    H5Tclose(both);
    return type;
}

static hid_t type_of(int which)
{
    if (which == TEXTS) return text_type();
    if (which == WORDS) return H5Tvlen_create(H5T_NATIVE_INT);
    return which == PAIRS ? pair_type() : nest_type();
}

/* A value of a type; the same for all its datasets. */
static const void *value_of(int which)
{
    static char *text = "a text", *texts[2] = {"one", "two"};
    static int numbers[3] = {1, 2, 3};
    static hvl_t words = {3, numbers};
    static pair one = {7, "in a pair"};
    static nest many;
    many = (nest){.5, {2, texts}, {{1, "first"}, {2, "second"}}};
    return which == TEXTS   ? (const void *)&text
           : which == WORDS ? &words
           : which == PAIRS ? (const void *)&one
                            : &many;
}

static hid_t creation_list(int layout, hid_t type, const void *fill)
{
    const hsize_t chunk = 2;
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    if (layout == CHUNKED || layout == DEFLATED) H5Pset_chunk(list, 1, &chunk);
    if (layout == DEFLATED) H5Pset_shuffle(list);
    if (layout == COMPACT) H5Pset_layout(list, H5D_COMPACT);
    require(fill == NULL || H5Pset_fill_value(list, type, fill) >= 0, "H5Pset_fill_value");
    return list;
}

static void name_of(int type, int layout, int is_filled, int is_written, char name[8])
{
    snprintf(name, 8, "%d%d%d%d", type, layout, is_filled, is_written);
}

static void write_elements(hid_t dataset, hid_t type, const void *value, hsize_t n)
{
    const size_t bytes = H5Tget_size(type);
    const hsize_t start = 0;
    const hid_t space = H5Dget_space(dataset), memory_space = H5Screate_simple(1, &n, NULL);
    char *elements = malloc(bytes * n);
    require(elements != NULL, "malloc");
    for (hsize_t i = 0; i < n; i++)
        memcpy(elements + i * bytes, value, bytes);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &n, NULL);
    require(H5Dwrite(dataset, type, memory_space, space, H5P_DEFAULT, elements) >= 0, "H5Dwrite");
    free(elements);
    H5Sclose(memory_space);
    H5Sclose(space);
}

static void write_all(const char *path)
{
    const hsize_t n = N;
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &n, NULL);
    for (int which = 0; which < 4 * N_TYPES * N_LAYOUTS; which++) {
        const int of = which % N_TYPES, layout = which / N_TYPES % N_LAYOUTS;
        const int is_filled = which / (N_TYPES * N_LAYOUTS) % 2;
        const int is_written = which / (2 * N_TYPES * N_LAYOUTS);
        char name[8];
        name_of(of, layout, is_filled, is_written, name);
        const hid_t type = type_of(of);
        const hid_t list = creation_list(layout, type, is_filled ? value_of(of) : NULL);
        const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
        require(dataset >= 0, "H5Dcreate2");
        if (is_written) write_elements(dataset, type, value_of(of), N - 2);
        const hid_t attribute = H5Acreate2(dataset, "a", type, space, H5P_DEFAULT, H5P_DEFAULT);
        H5Aclose(attribute);
        H5Dclose(dataset);
        H5Pclose(list);
        H5Tclose(type);
    }
    H5Sclose(space);
    H5Fclose(file);
}

/* ---- reads */

static void print_and_reclaim(const char *what, hid_t type, hid_t space, hid_t list, void *elements,
                              memory *counts)
{
    printf("%s: %ld allocations, %ld bytes, %ld live", what, counts->allocations, counts->bytes,
           counts->live);
    H5Treclaim(type, space, list, elements);
    printf(", then %ld\n", counts->live);
}

static void read_each(hid_t file, hid_t transfer, hid_t access, memory *counts)
{
    const hsize_t n = N;
    const hid_t space = H5Screate_simple(1, &n, NULL);
    for (int which = 0; which < 4 * N_TYPES * N_LAYOUTS; which++) {
        const int of = which % N_TYPES;
        char name[8], elements[N * sizeof(nest)] = {0};
        name_of(of, which / N_TYPES % N_LAYOUTS, which / (N_TYPES * N_LAYOUTS) % 2,
                which / (2 * N_TYPES * N_LAYOUTS), name);
        const hid_t type = type_of(of), dataset = H5Dopen2(file, name, access);
        for (int again = 0; again < 2; again++) {
            *counts = (memory){0};
            /* HDF5 cannot read some chunks in which elements were never written. */
            if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, transfer, elements) >= 0)
                print_and_reclaim(name, type, space, transfer, elements, counts);
            else
                printf("%s: failed\n", name);
        }
        const hid_t attribute = H5Aopen(dataset, "a", H5P_DEFAULT);
        require(H5Aread(attribute, type, elements) >= 0, "H5Aread");
        H5Treclaim(type, space, H5P_DEFAULT, elements);
        H5Aclose(attribute);
        H5Dclose(dataset);
        H5Tclose(type);
    }
    H5Sclose(space);
}

static void read_two_at_once(hid_t file, hid_t transfer, hid_t access, memory *counts)
{
    const hsize_t n = N;
    const hid_t space = H5Screate_simple(1, &n, NULL), type = pair_type();
    pair first[N], second[N];
    void *elements[2] = {first, second};
    char names[2][8];
    hid_t datasets[2], types[2] = {type, type}, spaces[2] = {H5S_ALL, H5S_ALL};
    for (int i = 0; i < 2; i++) {
        name_of(PAIRS, i ? CHUNKED : CONTIGUOUS, 1, 0, names[i]);
        datasets[i] = H5Dopen2(file, names[i], access);
    }
    *counts = (memory){0};
    require(H5Dread_multi(2, datasets, types, spaces, spaces, transfer, elements) >= 0,
            "H5Dread_multi");
    for (int i = 0; i < 2; i++) {
        print_and_reclaim("two", type, space, transfer, elements[i], counts);
        H5Dclose(datasets[i]);
    }
    H5Tclose(type);
    H5Sclose(space);
}

static void read_planes(const char *path, hid_t transfer, hid_t file_access, hid_t access)
{
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, file_access);
    const hid_t cube = H5Dopen2(file, "cube", access), space = H5Dget_space(cube);
    hsize_t extent[3];
    require(H5Sget_simple_extent_dims(space, extent, NULL) == 3, "opening the cube");
    const hsize_t n = extent[0] * extent[1], count[3] = {extent[0], extent[1], 1};
    const hid_t memory_space = H5Screate_simple(1, &n, NULL);
    double *plane = malloc(n * sizeof *plane), sum = 0;
    require(plane != NULL, "malloc");
    for (hsize_t z = 0; z < extent[2]; z++) {
        const hsize_t start[3] = {0, 0, z};
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        require(H5Dread(cube, H5T_NATIVE_DOUBLE, memory_space, space, transfer, plane) >= 0,
                "H5Dread");
        for (hsize_t i = 0; i < n; i++)
            sum += plane[i] * (double)(z + 1);
    }
    printf("planes: %g\n", sum);
    free(plane);
    H5Sclose(memory_space);
    H5Sclose(space);
    H5Dclose(cube);
    H5Fclose(file);
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    memory counts = {0};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    write_all(argv[1]);
    const hid_t transfer = counted_list(H5P_DATASET_XFER),
                access = counted_list(H5P_DATASET_ACCESS);
    const hid_t file_access = counted_list(H5P_FILE_ACCESS);
    H5Pset_vlen_mem_manager(transfer, allocate, &counts, release, &counts);
    const hid_t file = H5Fopen(argv[1], H5F_ACC_RDONLY, file_access);
    require(file >= 0, "H5Fopen");
    read_each(file, transfer, access, &counts);
    read_two_at_once(file, transfer, access, &counts);
    H5Fclose(file);
    read_planes(argv[2], transfer, file_access, access);
    printf("properties: copied %ld, asked for %ld", property.copied, property.asked);
    H5Pclose(transfer);
    H5Pclose(access);
    H5Pclose(file_access);
    printf(", closed %ld\n", property.closed);
    return 0;
}
