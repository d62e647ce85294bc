/* Reads a plane past the page cache. While the read has borrowed a large page, another thread
 * forks, and its child reads the next but one, likewise: in such children the read of the parent
 * never ends. Prints how many reads one inside the other borrowed a page: FILE N_GENERATIONS. */
#include <fcntl.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_ROWS = 64, N_COLUMNS = 8192 };

static hid_t data;
static int n_generations, generation, is_reading, n_borrowed;
static double plane[N_ROWS][N_COLUMNS];

static const char *path;

/* To look whether a plane is cached starts read-ahead, which may bring the next ones. */
static void drop_from_page_cache(void)
{
    static unsigned char state[1 << 20];
    struct stat found;
    const int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &found) != 0 || found.st_size > (off_t)sizeof state * 4096)
        exit(100);
    const size_t n = (size_t)(found.st_size + 4095) / 4096;
    void *mapped = mmap(NULL, n * 4096, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) exit(100);
    for (size_t n_cached = 1; n_cached > 0;) {
        if (posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0 ||
            mincore(mapped, n * 4096, state) != 0)
            exit(100);
        n_cached = 0;
        for (size_t i = 0; i < n; i++)
            n_cached += state[i] & 1;
    }
    munmap(mapped, n * 4096);
    close(file);
}

static int read_plane(void)
{
    drop_from_page_cache();
    const hsize_t start[] = {0, 2 * (hsize_t)generation, 0}, count[] = {N_ROWS, 1, N_COLUMNS};
    const hid_t file = H5Dget_space(data), memory = H5Screate_simple(3, count, NULL);
    H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, count, NULL);
    is_reading = 1;
    const herr_t status = H5Dread(data, H5T_NATIVE_DOUBLE, memory, file, H5P_DEFAULT, plane);
    is_reading = 0;
    for (int i = 0; i < N_ROWS; i++)
        for (int j = 0; j < N_COLUMNS; j++)
            if (status < 0 || plane[i][j] != i + j + 2 * generation) exit(100);
    return n_borrowed;
}

static void *read_in_child(void *none)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(300);
        generation++;
        n_borrowed = 0;
        _exit(read_plane());
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) >= 100)
        exit(100);
    n_borrowed += WEXITSTATUS(status);
    return none;
}

/* The connector's, which is loaded after the program. */
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset)
{
    if (is_reading && n == 2 << 20 && (flags & MAP_ANONYMOUS)) {
        is_reading = 0;
        n_borrowed = 1;
        pthread_t thread;
        if (generation + 1 < n_generations &&
            (pthread_create(&thread, NULL, read_in_child, NULL) || pthread_join(thread, NULL)))
            exit(100);
    }
    return (void *)syscall(SYS_mmap, at, n, protection, flags, file, offset);
}

int main(int n, char **arguments)
{
    if (n != 3) return 2;
    path = arguments[1];
    n_generations = atoi(arguments[2]);
    alarm(300); /* a deadlock ends */
    const hid_t file = H5Fopen(arguments[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    data = H5Dopen2(file, "cube", H5P_DEFAULT);
    if (data < 0) return 1;
    printf("%d\n", read_plane());
    H5Dclose(data);
    H5Fclose(file);
    return 0;
}
