// What a file of SDS_HOME says of file systems.
#pragma once

#include <nanobind/nanobind.h>

#include "sds/measured_format.h"

class Measured
{
  public:
    explicit Measured(nanobind::handle bytes);
    ~Measured();
    Measured(const Measured &) = delete;
    Measured &operator=(const Measured &) = delete;

    const sds_measured *get() const { return measured_; }

    // The parameters that hold for a canonical path on a file system of this kind; nullptr where it
    // was not measured.
    const sds_io_parameters *find(const char *canonical_path, uint64_t kind) const;

  private:
    sds_measured *measured_ = nullptr;
};
