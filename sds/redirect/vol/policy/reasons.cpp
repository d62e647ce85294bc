#include "reasons.h"

namespace sds::vol
{
namespace
{

constexpr const char *reason_text[] = {
    "a replica is predicted to be cheaper",
    "the original read by SDS's engine is predicted to be cheaper than through HDF5",
    "the original's chunks are decoded faster than by HDF5",
    "the source has changed, was removed or moved, or is being written",
    "the transfer is collective",
    "the transfer has a data transform",
    "the selection lies in the transfer's properties, or HDF5 does not list its elements",
    "the selection is of another extent than the dataset",
    "the selections reach outside, or are of different sizes",
    "the memory selection may name a point twice",
    "the memory type needs a conversion that SDS leaves to HDF5",
    "nothing is selected",
    "the original is predicted to be cheaper",
    "the program's chunk cache holds the dataset, and replicas were measured slower than copies",
    "no replica holds all that is selected",
    "the replica's chunks are larger than 1 MiB, which would take much of the program's memory",
    "only replicas in chunks or of segments are there, which serve boxes alone",
    "the replica serves a share of the reads",
    "the replica cannot be used",
    "other threads use the memory that there is to decode chunks of replicas",
    "no memory is left to keep the replica's chunk decoded, of which parts are read in turn",
    "the replica could not be read",
};

} // namespace

const char *text_of(Reason reason)
{
    return reason_text[reason];
}

} // namespace sds::vol
