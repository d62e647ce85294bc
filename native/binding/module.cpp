// sds._native: argument checks and array views over the native core; and reads that are repeated,
// in one step.
#include "binding.h"

NB_MODULE(_native, module)
{
    bind_geometry(module);
    bind_operation(module);
    bind_cost(module);
    bind_checksum(module);
    bind_trailer(module);
    bind_io_priority(module);
    bind_library_imports(module);
    bind_read_file(module);
    bind_repeated_reads(module);
    bind_last_end(module);
    bind_lists(module);
    bind_layouts(module);
    bind_table(module);
    bind_table_entry(module);
    bind_trace(module);
    bind_engine(module);
    bind_measured(module);
    bind_plan(module);
    bind_chunks(module);
    bind_simulator(module);
}
