// Which replica serves a read that is no box, predicted from a part of what it selects.
#pragma once

#include "original_choice.h"
#include "scattered.h"
#include "sds/table_format.h"

namespace sds::vol
{

// Choices made for a dataset. Reads that look alike from outside are decided alike for a while.
struct ScatteredChoice; // the latest few
struct ScatteredChoices {
    ScatteredChoice *newest;
    bool busy; // a thread is using them
};
void release_choices(ScatteredChoices &choices);

// Elements are picked from contiguous replicas only, and from those that hold them all.
bool can_serve(const sds_candidate &candidate, const ScatteredRead &read);

// The index of the cheapest candidate that is cheaper than the original, or how that is read.
int32_t choose_scattered(const Host &host, ScatteredChoices &choices, const Layouts &layouts,
                         const ScatteredRead &read);

} // namespace sds::vol
