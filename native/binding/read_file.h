// A file that the read engine reads, and what is kept of it between reads.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "measured.h"
#include "sds/blocks.h"
#include "sds/read_engine.h"

// Device, inode, size, and the times of the last change of bytes and of metadata, ns.
using Stamp = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;
Stamp stamp_of(const struct stat &found);

class ReadFile
{
  public:
    // A path is opened here and closed with this object; a descriptor stays the caller's.
    // measured: says what requests cost; nullptr: the built-in costs hold. Without follow_links a
    // path that is a link is an error, and nothing is waited for (a FIFO, a terminal).
    // replica_data: offset and bytes of the elements of a contiguous replica, whose blocks are
    // checked: each that is read (checks_all), or samples (checks_soon: the first earlier).
    ReadFile(nanobind::object path_or_descriptor, bool may_map, const Measured *measured,
             bool follow_links, std::optional<std::pair<int64_t, int64_t>> replica_data,
             bool checks_all, bool checks_soon);
    ~ReadFile();
    ReadFile(const ReadFile &) = delete;
    ReadFile &operator=(const ReadFile &) = delete;

    int fileno() const { return fd_; }
    sds_file *file() const { return file_; }

    // What requests to it cost; nullptr where that was not measured.
    const sds_io_parameters *parameters() const
    {
        return parameters_.is_measured ? &parameters_ : nullptr;
    }

    // Whether the descriptor is still the file that was opened: programs that become daemons close
    // every descriptor they have, and others take the numbers.
    bool is_open() const;

    // The same, and whether the path that was opened leads to the file as it was then.
    bool is_current() const;

    // Of the file, right after it was opened.
    const Stamp &stamp() const { return stamp_; }

    // Whether it is open, and whether any path leads to the file.
    bool is_linked() const;

    // Whether a block was found to differ from its checksum.
    bool is_damaged() const { return blocks_ && sds_blocks_damaged(blocks_.get()) >= 0; }

    // f_type of statfs(2).
    uint64_t file_system_type() const;

    // Whether attributes that this host knows may be older than the file.
    bool is_remote() const;

  private:
    void find_parameters(const Measured &measured);

    int fd_ = -1;
    bool is_own_ = false;
    std::string path_; // that was opened here
    Stamp stamp_ = {};
    sds_io_parameters parameters_ = {}; // where is_measured is set
    std::unique_ptr<sds_blocks, void (*)(sds_blocks *)> blocks_{nullptr, sds_blocks_free};
    sds_file *file_ = nullptr;
};

nanobind::dict report_dict(const sds_read_report &report);
