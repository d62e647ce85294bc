#include "binding.h"

void bind_geometry(nanobind::module_ &) {}
