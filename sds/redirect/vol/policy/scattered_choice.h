// Which replica serves a read that is no box, predicted from a part of what it selects.
#pragma once

#include "layouts.h"
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
// What was found in memory is not there any more: have reads chosen for anew.
void expire_choices(ScatteredChoices &choices);

// Elements are picked from contiguous replicas only, and from those that hold them all.
bool can_serve(const sds_candidate &candidate, const ScatteredRead &read);

// As sds_choose_listed returns it.
int32_t choose_scattered(const Host &host, const OpenDataset &dataset, ScatteredChoices &choices,
                         const Layouts &layouts, const ScatteredRead &read);

} // namespace sds::vol
