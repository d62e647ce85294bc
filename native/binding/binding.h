// What the parts of the binding share.
#pragma once

#include <nanobind/nanobind.h>

#include "sds/status.h"

void bind_geometry(nanobind::module_ &module);
void bind_operation(nanobind::module_ &module);
void bind_cost(nanobind::module_ &module);
void bind_checksum(nanobind::module_ &module);
void bind_trailer(nanobind::module_ &module);
void bind_io_priority(nanobind::module_ &module);
void bind_library_imports(nanobind::module_ &module);
void bind_read_file(nanobind::module_ &module);
void bind_repeated_reads(nanobind::module_ &module);
void bind_last_end(nanobind::module_ &module);
void bind_lists(nanobind::module_ &module);
void bind_layouts(nanobind::module_ &module);
void bind_table(nanobind::module_ &module);
void bind_table_entry(nanobind::module_ &module);
void bind_trace(nanobind::module_ &module);
void bind_engine(nanobind::module_ &module);
void bind_measured(nanobind::module_ &module);
void bind_plan(nanobind::module_ &module);
void bind_chunks(nanobind::module_ &module);
void bind_simulator(nanobind::module_ &module);

// Throw the Python exception that SDS_STATUS_MAP names for a status other than SDS_OK; the message
// is what + ": " + the status text (for SDS_EIO an OSError with errno).
void check(sds_status status, const char *what);
