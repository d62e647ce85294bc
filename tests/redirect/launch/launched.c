/* A program that changes its environment as its arguments say, and uses HDF5 in between:
 * set:NAME=VALUE, put:NAME=VALUE, unset:NAME, clear, ask (for HDF5_VOL_CONNECTOR), read, end
 * (H5close), exec (itself, with the rest).
 * Prints what it reads, where HDF5 looks for plugins, which filters it has, and HDF5's variables.
 */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;
static const int filters[] = {1, 2, 3, 307, 32001, 32004, 32008, 32013, 32015, 32026};

static void show_environment(void)
{
    for (char **at = environ; at && *at; at++)
        if (strncmp(*at, "HDF5_", 5) == 0) printf("%s\n", *at);
}

static void ask(void)
{
    const char *connector = getenv("HDF5_VOL_CONNECTOR");
    printf("connector: %s\n", connector ? connector : "none");
}

static void read_file(const char *path)
{
    int values[4] = {0};
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    const int read = H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    printf("read: %d %d, closed: %d %d\n", read, values[3], H5Dclose(dataset), H5Fclose(file));
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t connector = -1;
    H5Pget_vol_id(access, &connector);
    printf("released: %d %d\n", H5VLclose(connector), H5Pclose(access));
    unsigned n = 0;
    H5PLsize(&n);
    for (unsigned i = 0; i < n; i++) {
        char directory[512] = "";
        H5PLget(i, directory, sizeof directory);
        printf("plugins: %s\n", directory);
    }
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        printf("%d: %d\n", filters[i], H5Zfilter_avail(filters[i]));
}

int main(int n, char **arguments)
{
    for (int i = 2; i < n; i++) {
        char *step = arguments[i], *name = strchr(step, ':'), *value = strchr(step, '=');
        if (name) name++;
        if (strncmp(step, "put:", 4) == 0) {
            putenv(name);
        } else if (strncmp(step, "set:", 4) == 0) {
            *value = '\0';
            setenv(name, value + 1, 1);
            *value = '=';
        } else if (strncmp(step, "unset:", 6) == 0) {
            unsetenv(name);
        } else if (strcmp(step, "clear") == 0) {
            clearenv();
        } else if (strcmp(step, "read") == 0) {
            read_file(arguments[1]);
        } else if (strcmp(step, "ask") == 0) {
            ask();
        } else if (strcmp(step, "end") == 0) {
            printf("ended: %d\n", H5close());
        } else if (strcmp(step, "exec") == 0) {
            fflush(stdout);
            arguments[i - 1] = arguments[0];
            arguments[i] = arguments[1];
            execv(arguments[0], arguments + i - 1);
            return 99;
        }
    }
    show_environment();
    return 7;
}
