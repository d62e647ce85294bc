// The I/O priority of the calling thread, for which neither libc nor Python has a call.
#include <linux/ioprio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "binding.h"

namespace nb = nanobind;

namespace
{

constexpr int this_thread = 0;

int io_priority()
{
    const long found = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, this_thread);
    if (found < 0) check(SDS_EIO, "ioprio_get");
    return static_cast<int>(found);
}

void set_io_priority(int priority)
{
    if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, this_thread, priority) != 0)
        check(SDS_EIO, "ioprio_set");
}

} // namespace

void bind_io_priority(nb::module_ &module)
{
    module.attr("IDLE_IO_PRIORITY") = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0);
    module.def("io_priority", io_priority);
    module.def("set_io_priority", set_io_priority, nb::arg("priority"));
}
