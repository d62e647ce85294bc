/* How it works, and why so, is told in docs/explanation/signals.md.
 *
 * The disposition of a signal belongs to the whole process, and others set it, too: before us,
 * after us, several copies of this file in several libraries. What is found there when a handler of
 * ours is installed stays with *that* handler for good, as its predecessor. Hence several handlers:
 * one that is installed anew, over a handler that somebody put over ours and that may well lead
 * back to ours, is another one. Every chain leads from newer to older, and none runs in a circle.
 *
 * The handlers use no thread-local storage of the compiler's: in a library loaded at run time it
 * costs a share of a small static reserve, or is allocated at the first touch, which may be in a
 * handler. pthread_getspecific is safe there. No lock is held that a fork could leave locked. */
#include "guard.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define N_HANDLERS 8
#define MAX_CHAIN 64

/* Of linux/signal.h, which cannot be included beside signal.h: the kernel takes the alternate stack
 * away while a handler runs, and gives it back when that returns. */
#define ALTERNATE_STACK_IS_AWAY ((int)(1U << 31))

/* The kernel's set of signals is shorter than the C library's, which is filled with what follows in
 * memory. */
#define KERNEL_SIGNAL_BYTES 8

typedef void handler(int signal, siginfo_t *why, void *at);

/* The loads that a thread is in, the innermost ones first. */
typedef struct guard {
    const struct guard *self; /* what was left by a jump over it and written over is none */
    const uint8_t *begin, *end;
    sigjmp_buf landing;
    sigset_t signals; /* blocked when the fault came */
    stack_t stack;    /* likewise */
} guard;

static struct {
    pthread_once_t once;
    pthread_key_t innermost;
    int is_usable;
    _Atomic pid_t being_armed;     /* by this process; another one's is what a fork left behind */
    _Atomic(handler *) leads_here; /* another copy's handler that has one of ours behind it */
    atomic_int n_predecessors;
    struct sigaction predecessor[N_HANDLERS];
    atomic_int is_spent[N_HANDLERS]; /* was to be called once (SA_RESETHAND), and has been */
    sigset_t tag;
} state = {.once = PTHREAD_ONCE_INIT};

/* Copies of this file, perhaps of other versions, know each other's handlers by the signals they
 * block, and may ask them for their predecessor: by a call with the signal number 0. */
#define QUESTION UINT64_C(0x5D5C0DE51BB50001)

typedef struct question {
    uint64_t magic;
    int is_answered;
    struct sigaction predecessor;
} question;

static void make_tag(sigset_t *tag)
{
    static const int never[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGILL,
                                SIGFPE,  SIGTRAP, SIGABRT, SIGBUS};
    const uint32_t pattern = 0xB6D5A9E5U & 0x0FFFFFFFU; /* of the real-time signals */
    sigemptyset(tag);
    for (int s = 1; s < 32; s++)
        sigaddset(tag, s);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        sigdelset(tag, never[i]);
    for (int bit = 0; bit < 28 && 36 + bit <= SIGRTMAX; bit++)
        if (pattern >> bit & 1U) sigaddset(tag, 36 + bit);
}

static int same_signals(const sigset_t *a, const sigset_t *b)
{
    for (int s = 1; s <= SIGRTMAX; s++)
        if (sigismember(a, s) != sigismember(b, s)) return 0;
    return 1;
}

static int has_all_of(const sigset_t *set, const sigset_t *of)
{
    for (int s = 1; s <= SIGRTMAX; s++)
        if (sigismember(of, s) == 1 && sigismember(set, s) != 1) return 0;
    return 1;
}

static int is_same(const struct sigaction *a, const struct sigaction *b)
{
    const int flags =
        SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER | (int)SA_RESETHAND | SA_NOCLDSTOP;
    return a->sa_sigaction == b->sa_sigaction && ((a->sa_flags ^ b->sa_flags) & flags) == 0 &&
           same_signals(&a->sa_mask, &b->sa_mask);
}

static void blocked_at(const void *at, sigset_t *out)
{
    sigemptyset(out);
    memcpy(out, &((const ucontext_t *)at)->uc_sigmask, KERNEL_SIGNAL_BYTES);
}

/* Raised by an access, not sent; and by this one, not told of one that is yet to come. */
static int is_own_fault(const siginfo_t *why)
{
    return why->si_code > 0 && why->si_code != BUS_MCEERR_AO;
}

/* The alternate stack may have been taken away, which returning would undo; and until it is given
 * back, and this one left, no signal may come. */
static _Noreturn void leave(guard *loads, const void *at)
{
    sigset_t all;
    sigfillset(&all);
    blocked_at(at, &loads->signals);
    loads->stack = ((const ucontext_t *)at)->uc_stack;
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    siglongjmp(loads->landing, 1);
}

static void land(const guard *loads)
{
    if (loads->stack.ss_flags & ALTERNATE_STACK_IS_AWAY) sigaltstack(&loads->stack, NULL);
    pthread_sigmask(SIG_SETMASK, &loads->signals, NULL);
}

/* As if there had been no handler: the signal comes once more, with what it said, as soon as this
 * one returns. Where it is ignored now (by the first process of a container), a fault recurs by
 * itself. */
static void leave_to_default(siginfo_t *why)
{
    struct sigaction standard;
    memset(&standard, 0, sizeof standard);
    standard.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &standard, NULL);
    if (syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), SIGBUS, why) != 0 &&
        why->si_code <= 0)
        raise(SIGBUS);
}

/* Make everything as the predecessor would find it without us; return it, NULL: nothing to call. */
static handler *prepare_predecessor(int nth, siginfo_t *why, const void *at)
{
    const struct sigaction *before = &state.predecessor[nth];
    const int is_once = (before->sa_flags & (int)SA_RESETHAND) != 0;
    if (before->sa_handler == SIG_DFL ||
        (is_once && atomic_exchange(&state.is_spent[nth], 1) != 0)) {
        leave_to_default(why);
        return NULL;
    }
    if (is_once) {
        struct sigaction standard = *before;
        standard.sa_handler = SIG_DFL;
        standard.sa_flags &= ~SA_SIGINFO;
        sigaction(SIGBUS, &standard, NULL);
    }
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (has_all_of(&blocked, &state.tag)) { /* else not the kernel called, but another handler */
        blocked_at(at, &blocked);
        sigorset(&blocked, &blocked, &before->sa_mask);
        if ((before->sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, SIGBUS);
        pthread_sigmask(SIG_SETMASK, &blocked, NULL);
    }
    return before->sa_sigaction;
}

/* Whom to call, NULL: nobody. Does not return where loads are cut off. */
static handler *decide(int nth, int signal, siginfo_t *why, void *at)
{
    if (signal == 0) {
        question *asked = (question *)(void *)why;
        if (asked->magic != QUESTION) return NULL;
        asked->predecessor = state.predecessor[nth];
        asked->is_answered = 1;
        return NULL;
    }
    const int saved_errno = errno;
    guard *loads = pthread_getspecific(state.innermost);
    if (loads != NULL && loads->self == loads && is_own_fault(why) &&
        (const uint8_t *)why->si_addr >= loads->begin &&
        (const uint8_t *)why->si_addr < loads->end) {
        errno = saved_errno;
        leave(loads, at);
    }
    handler *predecessor = prepare_predecessor(nth, why, at);
    errno = saved_errno;
    return predecessor;
}

/* The predecessor is called last and with nothing kept on the stack, so that a stack printed by it
 * may do without us. One that takes only the number gets the rest all the same, as from the
 * kernel. */
#define HANDLERS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define DEFINE_HANDLER(nth)                                                                        \
    static void on_sigbus_##nth(int signal, siginfo_t *why, void *at)                              \
    {                                                                                              \
        handler *predecessor = decide(nth, signal, why, at);                                       \
        if (predecessor != NULL) predecessor(signal, why, at);                                     \
    }
HANDLERS(DEFINE_HANDLER)
#define NAME_HANDLER(nth) on_sigbus_##nth,
static handler *const handlers[N_HANDLERS] = {HANDLERS(NAME_HANDLER)};

static int is_ours(const struct sigaction *found)
{
    if ((found->sa_flags & SA_SIGINFO) == 0) return 0;
    for (int i = 0; i < N_HANDLERS; i++)
        if (found->sa_sigaction == handlers[i]) return 1;
    return 0;
}

/* Whether a fault that this handler does not take comes to one of ours. */
static int leads_here(const struct sigaction *found)
{
    struct sigaction at = *found;
    for (int i = 0; i < MAX_CHAIN; i++) {
        if (is_ours(&at)) return 1;
        if ((at.sa_flags & SA_SIGINFO) == 0 || !same_signals(&at.sa_mask, &state.tag)) return 0;
        question asked = {.magic = QUESTION};
        at.sa_sigaction(0, (siginfo_t *)(void *)&asked, NULL);
        if (!asked.is_answered) return 0;
        at = asked.predecessor;
    }
    return 0;
}

/* The handler that has this predecessor, -1: there are no more. */
static int handler_before(const struct sigaction *before)
{
    const int n = atomic_load(&state.n_predecessors);
    for (int i = 0; i < n; i++)
        if (is_same(&state.predecessor[i], before) && !atomic_load(&state.is_spent[i])) return i;
    if (n == N_HANDLERS) return -1;
    state.predecessor[n] = *before;
    atomic_store(&state.n_predecessors, n + 1);
    return n;
}

static struct sigaction handler_of(int nth)
{
    const struct sigaction *before = &state.predecessor[nth];
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = handlers[nth];
    ours.sa_mask = state.tag;
    ours.sa_flags = SA_SIGINFO;
    ours.sa_flags |= before->sa_handler == SIG_DFL ? SA_ONSTACK | SA_RESTART
                                                   : before->sa_flags & (SA_ONSTACK | SA_RESTART);
    return ours;
}

/* Put a handler of ours over what was found; 0: not possible. */
static int install(const struct sigaction *found)
{
    struct sigaction expected = *found, before = *found;
    for (int tries = 0; tries < N_HANDLERS; tries++) {
        const int nth = handler_before(&before);
        if (nth < 0) {
            if (tries > 0) sigaction(SIGBUS, &before, NULL);
            return 0;
        }
        struct sigaction ours = handler_of(nth), replaced;
        if (sigaction(SIGBUS, &ours, &replaced) != 0) return 0;
        if (is_same(&replaced, &expected)) return 1;
        /* Somebody was quicker: what we replaced is to be the predecessor. */
        if (is_ours(&replaced)) return sigaction(SIGBUS, &replaced, NULL) == 0;
        expected = ours;
        before = replaced;
    }
    return 0;
}

static int arm(const struct sigaction *found)
{
    /* Who ignores SIGBUS has it ignored by the programs it starts, too: a handler would end that.
     */
    if (found->sa_handler == SIG_IGN && (found->sa_flags & SA_SIGINFO) == 0) return 0;
    if (leads_here(found)) {
        atomic_store(&state.leads_here, found->sa_sigaction);
        return 1;
    }
    const pid_t self = getpid();
    pid_t owner = atomic_load(&state.being_armed);
    if (owner == self || !atomic_compare_exchange_strong(&state.being_armed, &owner, self))
        return 0;
    struct sigaction now;
    const int is_armed = sigaction(SIGBUS, NULL, &now) == 0 &&
                         (is_ours(&now) || (is_same(&now, found) && install(&now)));
    atomic_store(&state.being_armed, 0);
    return is_armed;
}

static void prepare(void)
{
    make_tag(&state.tag);
    state.is_usable = pthread_key_create(&state.innermost, NULL) == 0;
}

static int can_guard(void)
{
    struct sigaction now;
    sigset_t blocked;
    pthread_once(&state.once, prepare);
    if (!state.is_usable || sigaction(SIGBUS, NULL, &now) != 0 ||
        pthread_sigmask(SIG_BLOCK, NULL, &blocked) != 0)
        return 0;
    /* A fault with SIGBUS blocked kills. To unblock it could deliver one that waits for another. */
    if (sigismember(&blocked, SIGBUS) != 0) return 0;
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == atomic_load(&state.leads_here))
        return 1;
    return is_ours(&now) || arm(&now);
}

/* Not one with the function that holds the guard, which is written to before the jump back. */
static sds__loads_end run(guard *at, void (*loads)(void *), void *context)
{
    if (sigsetjmp(at->landing, 0) != 0) {
        land(at);
        return SDS__FAULTED;
    }
    if (pthread_setspecific(state.innermost, at) != 0) return SDS__UNGUARDED;
    atomic_signal_fence(memory_order_seq_cst);
    loads(context);
    atomic_signal_fence(memory_order_seq_cst);
    return SDS__LOADED;
}

sds__loads_end sds__guard_loads(const void *begin, size_t n, void (*loads)(void *), void *context)
{
    const int saved_errno = errno;
    sds__loads_end ended = SDS__UNGUARDED;
    if (can_guard()) {
        const guard *around = pthread_getspecific(state.innermost);
        guard here;
        here.self = &here;
        here.begin = begin;
        here.end = here.begin + n;
        ended = run(&here, loads, context);
        (void)pthread_setspecific(state.innermost, around);
        here.self = NULL;
    }
    errno = saved_errno;
    return ended;
}
