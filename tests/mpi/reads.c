// Reads datasets in the processes of an MPI program, and keeps what each has got.
//
//     mpiexec -n 4 reads [OPTION...] FILE KEPT STEP...
//
//     -m        metadata is read collectively
//     -s        every process opens the file by itself
//     -w        the file is opened for writing
//     -u        by HDF5's default driver rather than through MPI-IO
//     -t        HDF5 keeps hardly any metadata in memory
//
// A step is "RANKS HOW DATASET START COUNT", as in "02 i /x r,0,5 1,20,4": RANKS are the digits of
// those that make it, * stands for all; r in START is the rank; a dataset "@/x" is opened by its
// address. HOW is
//     i   independently
//     d   independently, without transfer properties
//     c   collectively
//     z   collectively, this process selecting nothing
//     m   independently, two datasets in one call: "/x+/y"
//     M   the same collectively
//     w   write zeros, collectively
// Values are read as doubles. KEPT.<rank> gets, for each read, whether it succeeded, how it was
// made, and the bytes.

#include <hdf5.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { max_rank = 8, max_datasets = 16 };

static int rank, n_ranks;
static FILE *kept;
static hid_t file, transfer;
static struct {
    char name[64];
    hid_t id;
} datasets[max_datasets];
static int n_datasets;

static void require(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int parse(const char *text, hsize_t out[max_rank])
{
    int n = 0;
    for (char *end; *text && n < max_rank; text = *end ? end + 1 : end) {
        if (*text == 'r') {
            out[n++] = (hsize_t)rank;
            end = (char *)text + 1;
        } else {
            out[n++] = strtoull(text, &end, 10);
        }
    }
    return n;
}

static hid_t open_dataset(const char *name)
{
    if (*name != '@') return H5Dopen2(file, name, H5P_DEFAULT);
    H5O_info2_t info;
    require(H5Oget_info_by_name3(file, name + 1, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0,
            "a dataset has no address");
    return H5Oopen_by_token(file, info.token);
}

// Every process opens every dataset of the steps, in their order.
static hid_t dataset_of(const char *name)
{
    for (int i = 0; i < n_datasets; i++)
        if (strcmp(datasets[i].name, name) == 0) return datasets[i].id;
    require(n_datasets < max_datasets, "too many datasets");
    snprintf(datasets[n_datasets].name, sizeof datasets[n_datasets].name, "%s", name);
    datasets[n_datasets].id = open_dataset(name);
    require(datasets[n_datasets].id >= 0, "a dataset cannot be opened");
    return datasets[n_datasets++].id;
}

static int is_mine(const char *ranks)
{
    return *ranks == '*' || strchr(ranks, '0' + rank) != NULL;
}

static void keep(const char *how, herr_t status, const void *bytes, size_t n)
{
    H5D_mpio_actual_io_mode_t io_mode = H5D_MPIO_NO_COLLECTIVE;
    H5D_mpio_actual_chunk_opt_mode_t chunk_mode = H5D_MPIO_NO_CHUNK_OPTIMIZATION;
    uint32_t local_cause = 0, global_cause = 0;
    H5Pget_mpio_actual_io_mode(transfer, &io_mode);
    H5Pget_mpio_actual_chunk_opt_mode(transfer, &chunk_mode);
    H5Pget_mpio_no_collective_cause(transfer, &local_cause, &global_cause);
    fprintf(kept, "%s status %d mode %d %d cause %u %u\n", how, (int)(status < 0), (int)io_mode,
            (int)chunk_mode, local_cause, global_cause);
    if (status >= 0) fwrite(bytes, 1, n, kept);
}

static int is_collective(const char *how)
{
    return strchr("czMw", *how) != NULL;
}

// Two datasets of the same extent, in one call.
static void read_two(const char *how, const char *names, const hsize_t start[],
                     const hsize_t count[], int n)
{
    char first[64];
    snprintf(first, sizeof first, "%s", names);
    char *second = strchr(first, '+');
    require(second != NULL, "two datasets are to be named");
    *second++ = '\0';
    hid_t ids[2] = {dataset_of(first), dataset_of(second)};
    hid_t types[2] = {H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE}, memories[2], selected[2];
    memories[0] = memories[1] = H5Screate_simple(n, count, NULL);
    selected[0] = selected[1] = H5Dget_space(ids[0]);
    H5Sselect_hyperslab(selected[0], H5S_SELECT_SET, start, NULL, count, NULL);
    const size_t n_bytes = (size_t)H5Sget_select_npoints(memories[0]) * sizeof(double);
    char *buffer = calloc(2, n_bytes);
    void *buffers[2] = {buffer, buffer + n_bytes};
    const herr_t status = H5Dread_multi(2, ids, types, memories, selected, transfer, buffers);
    keep(how, status, buffer, 2 * n_bytes);
    free(buffer);
    H5Sclose(memories[0]);
    H5Sclose(selected[0]);
}

static void take_step(const char *how, const char *name, const char *start_text,
                      const char *count_text)
{
    hsize_t start[max_rank], count[max_rank];
    const int n = parse(start_text, start);
    require(parse(count_text, count) == n, "start and count differ");
    H5Pset_dxpl_mpio(transfer, is_collective(how) ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT);
    if (*how == 'm' || *how == 'M') {
        read_two(how, name, start, count, n);
        return;
    }
    const hid_t dataset = dataset_of(name);
    const hid_t type = H5T_NATIVE_DOUBLE;
    const hid_t selected = H5Dget_space(dataset), memory = H5Screate_simple(n, count, NULL);
    H5Sselect_hyperslab(selected, H5S_SELECT_SET, start, NULL, count, NULL);
    if (*how == 'z') {
        H5Sselect_none(selected);
        H5Sselect_none(memory);
    }
    const size_t n_bytes = (size_t)H5Sget_select_npoints(memory) * H5Tget_size(type);
    char *buffer = calloc(1, n_bytes + 1);
    herr_t status;
    if (*how == 'w')
        status = H5Dwrite(dataset, type, memory, selected, transfer, buffer);
    else
        status =
            H5Dread(dataset, type, memory, selected, *how == 'd' ? H5P_DEFAULT : transfer, buffer);
    keep(how, status, buffer, n_bytes);
    free(buffer);
    H5Sclose(memory);
    H5Sclose(selected);
}

static void keep_little_metadata(hid_t access)
{
    H5AC_cache_config_t config = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    require(H5Pget_mdc_config(access, &config) >= 0, "no configuration of the cache");
    config.set_initial_size = 1;
    config.initial_size = config.min_size = config.max_size = 1024;
    config.incr_mode = H5C_incr__off;
    config.flash_incr_mode = H5C_flash_incr__off;
    config.decr_mode = H5C_decr__off;
    require(H5Pset_mdc_config(access, &config) >= 0, "the cache cannot be that small");
}

static int parse_step(const char *text, char ranks[16], char how[4], char name[64], char start[64],
                      char count[64])
{
    return sscanf(text, "%15s %3s %63s %63s %63s", ranks, how, name, start, count);
}

int main(int argc, char *argv[])
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    MPI_Comm together = MPI_COMM_WORLD;
    unsigned flags = H5F_ACC_RDONLY;
    int mpio = 1, next = 1;
    for (; next < argc && argv[next][0] == '-'; next++) {
        if (argv[next][1] == 'm') H5Pset_all_coll_metadata_ops(access, 1);
        if (argv[next][1] == 's') together = MPI_COMM_SELF;
        if (argv[next][1] == 'w') flags = H5F_ACC_RDWR;
        if (argv[next][1] == 'u') mpio = 0;
        if (argv[next][1] == 't') keep_little_metadata(access);
    }
    require(argc > next + 2, "too few arguments");
    if (mpio) H5Pset_fapl_mpio(access, together, MPI_INFO_NULL);
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", argv[next + 1], rank);
    kept = fopen(name, "wb");
    require(kept != NULL, "nothing can be kept");
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    file = H5Fopen(argv[next], flags, access);
    require(file >= 0, "the file cannot be opened");
    transfer = H5Pcreate(H5P_DATASET_XFER);
    char ranks[16], how[4], dataset[64], start[64], count[64];
    for (int i = next + 2; i < argc; i++)
        if (parse_step(argv[i], ranks, how, dataset, start, count) == 5)
            for (char *name = strtok(dataset, "+"); name; name = strtok(NULL, "+"))
                dataset_of(name);
    for (int i = next + 2; i < argc; i++) {
        const int n = parse_step(argv[i], ranks, how, dataset, start, count);
        require(n == 5, "a step is not understood");
        if (is_mine(ranks)) take_step(how, dataset, start, count);
    }
    for (int i = 0; i < n_datasets; i++)
        H5Dclose(datasets[i].id);
    H5Pclose(transfer);
    H5Pclose(access);
    require(H5Fclose(file) >= 0, "the file cannot be closed");
    fclose(kept);
    MPI_Finalize();
    return 0;
}
