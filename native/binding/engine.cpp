#include "binding.h"

void bind_engine(nanobind::module_ &) {}
