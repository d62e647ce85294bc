// Writes to the file that its first argument names what a program finds when it is started:
// dispositions and mask of signals, descriptors, limits, and what else is inherited.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) fprintf(stderr, "closed\n"); // as a program might
    int open_before[64], flags[64];
    for (int fd = 0; fd < 64; fd++) {
        open_before[fd] = fcntl(fd, F_GETFD);
        flags[fd] = fcntl(fd, F_GETFL);
    }
    FILE *out = fopen(argv[1], "w");
    if (!out) return 3;
    for (int fd = 0; fd < 64; fd++)
        fprintf(out, "descriptor %d %d %d\n", fd, open_before[fd], flags[fd]);
    sigset_t blocked, pending;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    sigpending(&pending);
    for (int number = 1; number < 65; number++) {
        struct sigaction action = {0};
        if (sigaction(number, NULL, &action) < 0) continue;
        fprintf(out, "signal %d %d %d %d\n", number, action.sa_handler == SIG_IGN,
                sigismember(&blocked, number), sigismember(&pending, number));
    }
    for (int limit = 0; limit < 16; limit++) {
        struct rlimit found = {0, 0};
        getrlimit((__rlimit_resource_t)limit, &found);
        fprintf(out, "limit %d %llu %llu\n", limit, (unsigned long long)found.rlim_cur,
                (unsigned long long)found.rlim_max);
    }
    fprintf(out, "nice %d\n", getpriority(PRIO_PROCESS, 0));
    fprintf(out, "leads %d %d\n", getpgrp() == getpid(), getsid(0) == getpid());
    fprintf(out, "ids %d %d %d %d\n", getuid(), geteuid(), getgid(), getegid());
    char directory[4096];
    fprintf(out, "directory %s\n", getcwd(directory, sizeof directory));
    for (int i = 0; i < argc; i++)
        fprintf(out, "argument %s\n", argv[i]);
    for (char **variable = environ; *variable; variable++)
        fprintf(out, "variable %s\n", *variable);
    const mode_t mask = umask(0);
    fprintf(out, "umask %o\n", (unsigned)mask);
    return fclose(out) != 0;
}
