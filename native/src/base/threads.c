#include "threads.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "control_group.h"

/* Of the program's own memory: what its handlers of signals and its thread-local variables take
 * comes out of it, too. */
#define STACK_BYTES (256 << 10)

/* What an instruction of the thread's own gives rise to. Where such a signal is blocked, the kernel
 * ends the process without asking its handler. */
static const int own_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

int32_t sds__start_threads(int32_t n, void *(*work)(void *), void *arguments, size_t argument_bytes,
                           pthread_t threads[])
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int32_t n_started = 0;
    if (n <= 0 || pthread_attr_init(&attributes) != 0) return 0;
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)sigfillset(&all);
    for (size_t i = 0; i < sizeof own_signals / sizeof *own_signals; i++)
        (void)sigdelset(&all, own_signals[i]);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) == 0) {
        while (n_started < n &&
               pthread_create(&threads[n_started], &attributes, work,
                              (char *)arguments + (size_t)n_started * argument_bytes) == 0)
            n_started++;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    (void)pthread_attr_destroy(&attributes);
    return n_started;
}

/* Threads that run or wait for a processor, on the whole machine; INT32_MAX where it is not told.
 */
static int32_t n_running(void)
{
    char text[128];
    int n = 0;
    const int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) (void)close(fd);
    text[got > 0 ? got : 0] = '\0';
    return sscanf(text, "%*s %*s %*s %d/", &n) == 1 && n > 0 ? n : INT32_MAX;
}

/* What control groups grant; asked once per process. */
static int32_t quota(void)
{
    static _Atomic int32_t found;
    int32_t n = atomic_load_explicit(&found, memory_order_relaxed);
    if (n == 0) {
        n = sds__processor_quota(SDS_GROUPS_FILE, SDS_GROUPS_MOUNT);
        atomic_store_explicit(&found, n, memory_order_relaxed);
    }
    return n;
}

static int32_t affinity(void)
{
    cpu_set_t own;
    return sched_getaffinity(0, sizeof own, &own) == 0 ? CPU_COUNT(&own) : 1;
}

int32_t sds__own_processors(void)
{
    const int saved_errno = errno;
    const int32_t n = affinity(), granted = quota();
    errno = saved_errno;
    return n < granted ? n : granted;
}

int32_t sds__idle_processors(void)
{
    const int saved_errno = errno;
    const int n = affinity();
    const int32_t running = n > 1 ? n_running() : n;
    int32_t idle = running < n ? n - running : 0;
    if (idle > 0 && quota() <= idle) idle = quota() - 1; /* one is this thread's */
    errno = saved_errno;
    return idle;
}
