/* HDF5 that starts at odd moments: in a thread that a constructor waits for, while the loader's
 * lock is held; with a pending request to end its thread; and between a failed call of the loader
 * and the look why.
 *
 *     odd_starts LIBRARY HDF5
 *
 * LIBRARY is this file, compiled with -DSHARED and linked with nothing; HDF5 is the library. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef SHARED

static void *start(void *none)
{
    void *hdf5 = dlopen(getenv("ODD_HDF5"), RTLD_LAZY | RTLD_NOLOAD);
    (void)none;
    return hdf5;
}

static void *call(void *function)
{
    printf("in a constructor's thread: %d\n", ((int (*)(void))function)());
    return NULL;
}

__attribute__((constructor)) static void wait_for_a_thread(void)
{
    pthread_t thread;
    void *hdf5 = start(NULL);
    void *function = hdf5 ? dlsym(hdf5, "H5open") : NULL;
    if (function && pthread_create(&thread, NULL, call, function) == 0) pthread_join(thread, NULL);
}

#else

static int (*h5open)(void), (*h5close)(void);
static int has_returned;

static void *start_while_cancelled(void *none)
{
    pthread_cancel(pthread_self());
    has_returned = 1 + h5open();
    pthread_testcancel();
    return none;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    void *hdf5 = dlopen(argv[2], RTLD_LAZY | RTLD_GLOBAL);
    if (!hdf5) return 3;
    *(void **)&h5open = dlsym(hdf5, "H5open");
    *(void **)&h5close = dlsym(hdf5, "H5close");
    setenv("ODD_HDF5", argv[2], 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    void *library = dlopen(argv[1], RTLD_NOW);
    const char *error = dlerror();
    printf("loaded: %d %s\n", library != NULL, error ? error : "without an error");
    h5close();

    pthread_t thread;
    if (pthread_create(&thread, NULL, start_while_cancelled, NULL) != 0) return 4;
    pthread_join(thread, NULL);
    printf("in a cancelled thread: %d\n", has_returned);
    h5close();

    dlopen("/nowhere.so", RTLD_NOW);
    const int status = h5open();
    error = dlerror();
    printf("between a failure and why: %d %s\n", status, error ? error : "nothing is known");
    return h5close();
}

#endif
