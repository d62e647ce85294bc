// A dataset of a redirect table: what reads of it are predicted to cost, and how they are done.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "read_file.h"
#include "sds/choose.h"
#include "sds/geometry.h"
#include "sds/read_engine.h"
#include "sds/table_format.h"

// How reads of one shape are done from a contiguous replica, wherever they start.
struct StoredRead {
    int64_t base_offset = 0; // of a read that starts at index 0 of every axis of the source
    std::vector<int64_t> index_bytes; // what one index further along an axis of it adds
    sds_runs runs = {};
    bool keeps_order = false; // elements lie in the replica in the order of the source
};

// Candidate by its index, or TableEntry::original, and how many reads alike it serves.
struct TableChoice {
    int32_t candidate;
    uint32_t n_uses;
};

class TableEntry
{
  public:
    static constexpr int32_t original = -1;

    // encoded: a table of this dataset alone.
    explicit TableEntry(nanobind::handle encoded);

    int32_t rank() const { return dataset_.rank; }
    int64_t element_bytes() const { return dataset_.element_bytes; }
    // Throws where a selection is none of the dataset.
    void check_selection(const sds_hyperslab &slab) const;

    // Whether reads of one shape can be decided about alike wherever they start, from the table
    // alone: source and replicas are contiguous, and every replica holds all of the source.
    bool is_plain() const;

    // What serves a selection, as sds_choose has it.
    // source: the original as the engine reads it; nullptr: what the page cache holds of it is not
    // looked at. find_file(i): the file of candidate i, None where it is not good; None: nor is
    // what it holds of replicas.
    TableChoice choose(const sds_hyperslab &slab, const ReadFile *source,
                       nanobind::handle find_file) const;

    // Seconds, cold, as they are compared: of the original through HDF5, of the original by the
    // engine, and of each candidate; negative where that cannot serve.
    std::vector<double> seconds(const sds_hyperslab &slab) const;

    // Of each candidate: 0 where it does not hold all that is selected, else how many pieces that
    // takes: one, but of segments.
    std::vector<int64_t> pieces(const sds_hyperslab &slab) const;

    // Throws where a contiguous candidate does not hold the selection.
    StoredRead stored_read(int32_t candidate, const sds_hyperslab &slab) const;

    // Read from a candidate of segments, open as file, into memory of that size, packed in the
    // order of the source. announced: as in sds/tiles.h.
    sds_status read_tiles(int32_t candidate, const sds_hyperslab &slab, sds_file *file,
                          uint8_t announced[], void *out) const;
    // Bytes that a candidate of segments needs for `announced`; 0 of others.
    size_t announced_bytes(int32_t candidate) const;

  private:
    sds_layouts layouts() const;
    struct Release {
        void operator()(sds_table *table) const { sds_table_close(table); }
    };

    sds_candidate candidate_at(int32_t i) const;

    std::unique_ptr<sds_table, Release> table_;
    sds_table_dataset dataset_ = {};
};
