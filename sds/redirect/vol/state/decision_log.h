// The log that SDS_DEBUG names: what the connector decided and why, for `sds doctor`.
//
// One line per decision, tab-separated: process id, event, file, dataset, reason. Never to stdout
// or stderr. Without SDS_DEBUG a call costs one comparison.
#pragma once

namespace sds::vol
{

// event: a word such as "bound", "opened", "served", "original".
void log_decision(const char *event, const char *file, const char *dataset, const char *reason);

bool decisions_are_logged();

} // namespace sds::vol
