#include "binding.h"

void bind_formats(nanobind::module_ &) {}
