// Forks of the program.
#pragma once

namespace sds::vol
{

// To be called before there is anything that a fork could find half done: from then on the shared
// state is held across each fork, and the child begins with all locks free and a trace of its own.
void watch_forks();

} // namespace sds::vol
