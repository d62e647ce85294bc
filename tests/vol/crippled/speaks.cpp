// A connector that says what it decides where the program prints its errors.
#include "decision_log.h"

#include <stdio.h>

namespace sds::vol
{

void sound_log_decision(const char *event, const char *file, const char *dataset,
                        const char *reason);

void log_decision(const char *event, const char *file, const char *dataset, const char *reason)
{
    fprintf(stderr, "sds: %s %s%s: %s\n", event, file, dataset, reason);
    sound_log_decision(event, file, dataset, reason);
}

} // namespace sds::vol
