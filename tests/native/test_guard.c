/* Every scenario runs in a process of its own, which says how it ended and what it printed. */
#include "guard.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PAGE 4096

#ifndef UFFDIO_POISON /* Linux 6.6, which the headers may be older than */
#define UFFD_FEATURE_POISON (1 << 14)
struct uffdio_poison {
    struct uffdio_range range;
    uint64_t mode;
    int64_t updated;
};
#define UFFDIO_POISON _IOWR(UFFDIO, 0x08, struct uffdio_poison)
#endif

#define SAY(text) CHECK(write(STDOUT_FILENO, text "\n", sizeof text) == sizeof text)

typedef sds__loads_end guard_loads(const void *, size_t, void (*)(void *), void *);

/* A mapped file of two pages that ends after the first. */
static volatile uint8_t *cut_file(void)
{
    char path[] = "/tmp/sds-guard-XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0 && ftruncate(fd, 2 * PAGE) == 0);
    uint8_t *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED && ftruncate(fd, PAGE) == 0);
    close(fd);
    return at;
}

typedef struct {
    volatile uint8_t *from;
    uint8_t got;
} one_load;

static void load_one(void *context)
{
    one_load *load = context;
    load->got = *load->from;
}

static sds__loads_end load_with(guard_loads *with, volatile uint8_t *file, size_t offset)
{
    one_load load = {file + offset, 0};
    return with((const void *)file, 2 * PAGE, load_one, &load);
}

static volatile uint8_t *ours, *foreign;

static void check_recovers(guard_loads *with)
{
    CHECK(load_with(with, ours, 0) == SDS__LOADED);
    CHECK(load_with(with, ours, PAGE + 5) == SDS__FAULTED);
    CHECK(load_with(with, ours, 1) == SDS__LOADED);
}

static void foreign_fault(void)
{
    (void)foreign[PAGE + 7];
}

static void set_handler(void (*handler)(int, siginfo_t *, void *), int flags, int also_blocked)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    if (also_blocked != 0) sigaddset(&action.sa_mask, also_blocked);
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
}

/* Handlers of programs. */
static sigjmp_buf away;
static int expected_nodefer, expected_blocked;

static void check_blocked(void)
{
    sigset_t now;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
    for (int s = 1; s <= SIGRTMAX; s++) {
        const int expected = (s == SIGBUS && !expected_nodefer) || s == expected_blocked;
        if (s != 32 && s != 33) CHECK(sigismember(&now, s) == expected);
    }
}

static void jumping(int signal, siginfo_t *why, void *at)
{
    CHECK(signal == SIGBUS && at != NULL && why->si_code == BUS_ADRERR);
    CHECK((volatile uint8_t *)why->si_addr == foreign + PAGE + 7);
    check_blocked();
    SAY("program's handler");
    siglongjmp(away, 1);
}

static void mending(int signal, siginfo_t *why, void *at)
{
    (void)signal;
    (void)at;
    check_blocked();
    SAY("program's handler");
    CHECK(mmap((uint8_t *)why->si_addr - 7, PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
}

static void told_who_sent(int signal, siginfo_t *why, void *at)
{
    (void)at;
    CHECK(signal == SIGBUS && why->si_code == SI_USER && why->si_pid == getpid());
    SAY("sent");
}

/* As Python's faulthandler, and others that report and then leave it to who was there before. */
static struct sigaction before_reporter;
static int reporter_is_on;

static void reporting(int signal)
{
    if (!reporter_is_on) return;
    reporter_is_on = 0;
    sigaction(SIGBUS, &before_reporter, NULL);
    SAY("report");
    raise(signal);
}

static void enable_reporter(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = reporting;
    action.sa_flags = SA_NODEFER;
    reporter_is_on = 1;
    CHECK(sigaction(SIGBUS, &action, &before_reporter) == 0);
}

static void disable_reporter(void)
{
    reporter_is_on = 0;
    CHECK(sigaction(SIGBUS, &before_reporter, NULL) == 0);
}

/* Calls who was there before, and returns. */
static struct sigaction before_chaining;

static void chaining(int signal, siginfo_t *why, void *at)
{
    SAY("chained");
    if (before_chaining.sa_flags & SA_SIGINFO) before_chaining.sa_sigaction(signal, why, at);
}

static void enable_chaining(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = chaining;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGBUS, &action, &before_chaining) == 0);
}

static void fault_and_come_back(void)
{
    if (sigsetjmp(away, 1) == 0) {
        foreign_fault();
        CHECK(0);
    }
}

/* The scenarios. */

static void without_us(void)
{
    foreign_fault();
}

static void default_stays_fatal(void)
{
    check_recovers(sds__guard_loads);
    foreign_fault();
}

static void default_stays_fatal_when_sent(void)
{
    check_recovers(sds__guard_loads);
    kill(getpid(), SIGBUS);
}

static void faults_outside_the_range_stay_fatal(void)
{
    one_load load = {foreign + PAGE, 0};
    sds__guard_loads((const void *)ours, 2 * PAGE, load_one, &load);
}

static void handlers_before_and_after_get_theirs(void)
{
    const int flags[] = {SA_SIGINFO, SA_SIGINFO | SA_NODEFER, SA_SIGINFO | SA_ONSTACK};
    for (int i = 0; i < 3; i++) {
        expected_nodefer = (flags[i] & SA_NODEFER) != 0;
        expected_blocked = SIGUSR1 + i;
        set_handler(jumping, flags[i], SIGUSR1 + i);
        fault_and_come_back();
        check_recovers(sds__guard_loads);
        fault_and_come_back();
        fault_and_come_back();
        check_recovers(sds__guard_loads);
    }
    set_handler(mending, SA_SIGINFO, SIGUSR1 + 2);
    expected_nodefer = 0;
    check_recovers(sds__guard_loads);
    foreign_fault();
    foreign_fault();
    CHECK(foreign[PAGE + 7] == 0);
    set_handler(told_who_sent, SA_SIGINFO, 0);
    check_recovers(sds__guard_loads);
    kill(getpid(), SIGBUS);
}

static void a_handler_for_once_is_called_once(void)
{
    set_handler(jumping, SA_SIGINFO | (int)SA_RESETHAND, 0);
    check_recovers(sds__guard_loads);
    fault_and_come_back();
    check_recovers(sds__guard_loads);
    foreign_fault();
}

static void ignored_stays_ignored(void)
{
    signal(SIGBUS, SIG_IGN);
    CHECK(load_with(sds__guard_loads, ours, 0) == SDS__UNGUARDED);
    kill(getpid(), SIGBUS);
    struct sigaction now;
    CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
}

static void blocked_is_not_guarded(void)
{
    sigset_t set;
    check_recovers(sds__guard_loads);
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(load_with(sds__guard_loads, ours, 0) == SDS__UNGUARDED);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    check_recovers(sds__guard_loads);
}

static void reporter_before(void)
{
    enable_reporter();
    check_recovers(sds__guard_loads);
    foreign_fault();
}

static void reporter_after(void)
{
    check_recovers(sds__guard_loads);
    enable_reporter();
    check_recovers(sds__guard_loads);
    foreign_fault();
}

static void reporter_after_without_a_read(void)
{
    check_recovers(sds__guard_loads);
    enable_reporter();
    foreign_fault();
}

static void reporter_on_and_off(void)
{
    for (int i = 0; i < 100; i++) {
        enable_reporter();
        check_recovers(sds__guard_loads);
        disable_reporter();
        check_recovers(sds__guard_loads);
    }
    enable_reporter();
    check_recovers(sds__guard_loads);
    foreign_fault();
}

static void chained_handlers_end(void)
{
    check_recovers(sds__guard_loads);
    enable_chaining();
    check_recovers(sds__guard_loads);
    foreign_fault();
}

static void handlers_run_out_safely(void)
{
    int n_guarded = 0;
    for (int i = 0; i < 40; i++) {
        set_handler(told_who_sent, SA_SIGINFO, SIGRTMIN + i % 20);
        const sds__loads_end ended = load_with(sds__guard_loads, ours, 0);
        CHECK(ended == SDS__LOADED || ended == SDS__UNGUARDED);
        n_guarded += ended == SDS__LOADED;
        kill(getpid(), SIGBUS);
    }
    CHECK(n_guarded > 0 && n_guarded < 40);
}

static void mask_and_stacks_are_as_before(void)
{
    static uint8_t memory[1 << 16];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory, .ss_flags = (int)(1U << 31)};
    CHECK(sigaltstack(&stack, NULL) == 0);
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        check_recovers(sds__guard_loads);
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &after) == 0);
        for (int s = 1; s <= SIGRTMAX; s++)
            CHECK(sigismember(&after, s) == sigismember(&before, s));
        stack_t now;
        CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == memory && now.ss_size == sizeof memory);
    }
    errno = 77;
    check_recovers(sds__guard_loads);
    CHECK(errno == 77);
}

static void children_of_fork_are_guarded(void)
{
    check_recovers(sds__guard_loads);
    const pid_t child = fork();
    check_recovers(sds__guard_loads);
    if (child == 0) foreign_fault();
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFSIGNALED(how) && WTERMSIG(how) == SIGBUS);
}

static void left_by_a_jump(int signal)
{
    (void)signal;
    siglongjmp(away, 1);
}

static void load_after_signal(void *context)
{
    (void)context;
    raise(SIGUSR1);
}

static void loads_left_by_a_jump_are_forgotten(void)
{
    signal(SIGUSR1, left_by_a_jump);
    for (volatile int i = 0; i < 20; i++)
        if (sigsetjmp(away, 1) == 0)
            sds__guard_loads((const void *)ours, 2 * PAGE, load_after_signal, NULL);
    check_recovers(sds__guard_loads);
    foreign_fault();
}

static void *recover_in_thread(void *context)
{
    for (int i = 0; i < 100; i++)
        check_recovers(sds__guard_loads);
    return context;
}

static void small_threads_are_guarded(void)
{
    pthread_attr_t attributes;
    pthread_t threads[8];
    CHECK(pthread_attr_init(&attributes) == 0 &&
          pthread_attr_setstacksize(&attributes, 64 << 10) == 0);
    check_recovers(sds__guard_loads);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], &attributes, recover_in_thread, NULL) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Who comes while another thread installs the handler does not wait: calls make its loads. */
static atomic_int n_ready;

static void *load_first(void *context)
{
    atomic_fetch_add(&n_ready, 1);
    while (atomic_load(&n_ready) < 8) {}
    const sds__loads_end ended = load_with(sds__guard_loads, ours, 0);
    CHECK(ended == SDS__LOADED || ended == SDS__UNGUARDED);
    return ended == SDS__LOADED ? context : NULL;
}

static void first_loads_at_a_time_do_not_wait(void)
{
    pthread_t threads[8];
    int n_guarded = 0;
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, load_first, &n_ready) == 0);
    for (int i = 0; i < 8; i++) {
        void *was_guarded;
        CHECK(pthread_join(threads[i], &was_guarded) == 0);
        n_guarded += was_guarded != NULL;
    }
    CHECK(n_guarded > 0);
    check_recovers(sds__guard_loads);
}

static guard_loads *copy(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    guard_loads *found;
    *(void **)&found = dlsym(library, "copy_guard_loads");
    CHECK(found != NULL);
    return found;
}

static void check_copies_recover(int times)
{
    guard_loads *all[] = {sds__guard_loads, copy(GUARD_COPY_A), copy(GUARD_COPY_B)};
    CHECK(all[0] != all[1] && all[1] != all[2]);
    for (int i = 0; i < times; i++)
        for (int k = 0; k < 3; k++)
            check_recovers(all[(i + k) % 3]);
}

static void copies_get_along(void)
{
    check_copies_recover(50);
    foreign_fault();
}

static void copies_around_reporter(void)
{
    check_recovers(copy(GUARD_COPY_A));
    enable_reporter();
    check_recovers(copy(GUARD_COPY_B));
    check_copies_recover(50);
    for (int i = 0; i < 20; i++) {
        disable_reporter();
        check_copies_recover(2);
        enable_reporter();
        check_copies_recover(2);
    }
    foreign_fault();
}

static void copies_under_reporter(void)
{
    check_copies_recover(5);
    enable_reporter();
    foreign_fault();
}

static void copies_and_a_program_that_recovers(void)
{
    expected_blocked = SIGUSR1;
    check_recovers(copy(GUARD_COPY_A));
    set_handler(jumping, SA_SIGINFO, SIGUSR1);
    check_copies_recover(50);
    for (int i = 0; i < 3; i++)
        fault_and_come_back();
    check_copies_recover(50);
    fault_and_come_back();
}

/* A page whose memory failed: userfaultfd can say so of one that did not. -1: not here. */
static int poison(uint8_t *page)
{
    const int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_POISON};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0) return -1;
    struct uffdio_register range = {.range = {(uintptr_t)page, PAGE},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_poison poisoned = {.range = {(uintptr_t)page, PAGE}};
    CHECK(ioctl(faults, UFFDIO_REGISTER, &range) == 0);
    CHECK(ioctl(faults, UFFDIO_POISON, &poisoned) == 0);
    return 0;
}

static void pages_of_failed_memory_are_recovered(void)
{
    const int fd = memfd_create("sds-guard", 0);
    CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
    uint8_t *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    at[0] = 1;
    if (poison(at + PAGE) == 0) ours = at;
    check_recovers(sds__guard_loads);
}

static void run(const char *name, void (*scenario)(void), int by_signal, const char *says)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        signal(SIGBUS, SIG_DFL);
        ours = cut_file();
        foreign = cut_file();
        alarm(60);
        scenario();
        _exit(0);
    }
    close(ends[1]);
    char said[4096];
    size_t n = 0;
    ssize_t got;
    while ((got = read(ends[0], said + n, sizeof said - 1 - n)) > 0)
        n += (size_t)got;
    said[n] = 0;
    close(ends[0]);
    int how;
    CHECK(waitpid(child, &how, 0) == child);
    const int is_right = by_signal != 0 ? WIFSIGNALED(how) && WTERMSIG(how) == by_signal : how == 0;
    if (!is_right || strcmp(said, says) != 0) {
        fprintf(stderr, "%s: wait status %#x, said \"%s\"\n", name, (unsigned)how, said);
        exit(1);
    }
}

#define REPEAT_3(text) text text text
#define RUN(scenario, by_signal, says) run(#scenario, scenario, by_signal, says)

int main(void)
{
    RUN(without_us, SIGBUS, "");
    RUN(default_stays_fatal, SIGBUS, "");
    RUN(default_stays_fatal_when_sent, SIGBUS, "");
    RUN(faults_outside_the_range_stay_fatal, SIGBUS, "");
    RUN(handlers_before_and_after_get_theirs, 0,
        REPEAT_3(REPEAT_3("program's handler\n")) "program's handler\nsent\n");
    RUN(a_handler_for_once_is_called_once, SIGBUS, "program's handler\n");
    RUN(ignored_stays_ignored, 0, "");
    RUN(blocked_is_not_guarded, 0, "");
    RUN(reporter_before, SIGBUS, "report\n");
    RUN(reporter_after, SIGBUS, "report\n");
    RUN(reporter_after_without_a_read, SIGBUS, "report\n");
    RUN(reporter_on_and_off, SIGBUS, "report\n");
    RUN(chained_handlers_end, SIGBUS, "chained\n");
    RUN(mask_and_stacks_are_as_before, 0, "");
    RUN(children_of_fork_are_guarded, 0, "");
    RUN(loads_left_by_a_jump_are_forgotten, SIGBUS, "");
    RUN(small_threads_are_guarded, 0, "");
    RUN(first_loads_at_a_time_do_not_wait, 0, "");
    RUN(copies_get_along, SIGBUS, "");
    RUN(copies_around_reporter, SIGBUS, "report\n");
    RUN(copies_under_reporter, SIGBUS, "report\n");
    RUN(copies_and_a_program_that_recovers, 0,
        REPEAT_3("program's handler\n") "program's handler\n");
    char sent[40 * 5 + 1] = "";
    for (int i = 0; i < 40; i++)
        memcpy(sent + 5 * i, "sent\n", 6);
    RUN(handlers_run_out_safely, 0, sent);
    RUN(pages_of_failed_memory_are_recovered, 0, "");
    return 0;
}
