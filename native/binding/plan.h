// Plans and their parameters as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sds/read_plan.h"

// Runs as geometry.cpp gives them; SdsValueError where counts and strides do not belong together.
sds_runs runs_of(int64_t first_offset, int64_t run_bytes, const std::vector<int64_t> &counts,
                 const std::vector<int64_t> &strides_bytes);

// From the dict that io_parameters() makes; of what it leaves out, the built-in value.
// SdsValueError for a name that there is not, or a value that cannot be.
sds_io_parameters io_parameters_of(nanobind::handle parameters);

// "auto", "multiple", ...; SdsValueError names those that there are.
sds_strategy strategy_of(const std::string &name);
sds_executor executor_of(const std::string &name);
sds_cache cache_of(const std::string &name);

// All that io_parameters_of() takes.
nanobind::dict parameters_dict(const sds_io_parameters &parameters);

nanobind::dict plan_dict(const sds_read_plan &plan);
