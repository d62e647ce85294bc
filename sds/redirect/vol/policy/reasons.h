// Why a read goes to the original, in words for the log of decisions.
#pragma once

namespace sds::vol
{

enum Reason {
    served,
    read_by_engine,
    decoded_by_core,
    stale_source,
    collective_transfer,
    transformed,
    irregular_selection,
    foreign_space,
    refused_spaces,
    repeated_points,
    other_type,
    empty_selection,
    original_cheaper,
    kept_decoded,
    not_held,
    large_chunks,
    boxes_alone,
    outside_share,
    replica_unusable,
    decoding_elsewhere,
    decoded_again,
    failed_transfer
};

const char *text_of(Reason reason);

} // namespace sds::vol
