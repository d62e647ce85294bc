// A file that the read engine reads, and what is kept of it between reads.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <string>

#include "sds/read_engine.h"

class ReadFile
{
  public:
    // A path is opened here and closed with this object; a descriptor stays the caller's.
    ReadFile(nanobind::object path_or_descriptor, bool may_map);
    ~ReadFile();
    ReadFile(const ReadFile &) = delete;
    ReadFile &operator=(const ReadFile &) = delete;

    int fileno() const { return fd_; }
    sds_file *file() const { return file_; }

    // Whether the descriptor is still the file that was opened: programs that become daemons close
    // every descriptor they have, and others take the numbers.
    bool is_open() const;

    // The same, and whether any path leads to the file.
    bool is_linked() const;

    // Whether attributes that this host knows may be older than the file.
    bool is_remote() const;

  private:
    int fd_ = -1;
    bool is_own_ = false;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    sds_file *file_ = nullptr;
};

// The options that a strategy's name stands for; throws SdsValueError for another one.
sds_read_options options_of_strategy(const std::string &name);

nanobind::dict report_dict(const sds_read_report &report);
