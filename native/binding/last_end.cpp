// A signal that ends the process even while a call holds the interpreter, as an open on a file
// system that hangs does: Python's own handlers only run between two of its instructions.
#include "binding.h"
#include <cerrno>
#include <csignal>
#include <unistd.h>

namespace nb = nanobind;

namespace
{

constexpr int max_signals = 65;
void (*previous[max_signals])(int);
volatile sig_atomic_t seconds_left = 0;
volatile sig_atomic_t is_armed = 0;

// Only calls that are safe in a handler: alarm, and Python's handler, which notes the signal.
void on_signal(int number)
{
    const int saved = errno;
    if (is_armed == 0) {
        is_armed = 1;
        alarm(static_cast<unsigned>(seconds_left));
    }
    if (previous[number] != SIG_DFL && previous[number] != SIG_IGN) previous[number](number);
    errno = saved;
}

void end_after_signal(int number, int seconds)
{
    if (number < 1 || number >= max_signals || seconds < 1)
        throw nb::value_error("a signal and at least one second");
    struct sigaction now = {};
    if (sigaction(number, nullptr, &now) != 0) throw nb::value_error("no such signal");
    if (now.sa_handler == on_signal) return;
    previous[number] = now.sa_handler;
    seconds_left = seconds;
    now.sa_handler = on_signal;
    signal(SIGALRM, SIG_DFL);
    if (sigaction(number, &now, nullptr) != 0)
        throw nb::value_error("that signal cannot be caught");
}

} // namespace

void bind_last_end(nb::module_ &module)
{
    module.def("end_after_signal", end_after_signal, nb::arg("number"), nb::arg("seconds"),
               "Have SIGALRM end the process some seconds after a signal, unless it ends before.");
}
