// How the binding looks into Python objects: buffers, paths, numbers in messages.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <string>
#include <vector>

// Throw SdsValueError.
[[noreturn]] void refuse(const std::string &message);

// The bytes of a str, bytes or os.PathLike, as os.fsencode gives them.
std::string bytes_of_path(nanobind::handle path);

// A str of bytes that the file system gave, as os.fsdecode gives it.
nanobind::object path_of_bytes(const char *bytes);

// A contiguous view of an object with the buffer protocol, for as long as this lives.
class Buffer
{
  public:
    explicit Buffer(nanobind::handle object, bool is_written = false);
    ~Buffer();
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    void *bytes() const { return view_.buf; }
    size_t size() const { return static_cast<size_t>(view_.len); }

  private:
    Py_buffer view_;
};

// The same, and of what elements; not open where the object has no such view.
class FormattedBuffer
{
  public:
    explicit FormattedBuffer(nanobind::handle object, bool is_written = false);
    ~FormattedBuffer();
    FormattedBuffer(const FormattedBuffer &) = delete;
    FormattedBuffer &operator=(const FormattedBuffer &) = delete;
    bool is_open() const { return is_open_; }
    bool is_int64_list() const; // in one dimension
    bool has_objects() const;
    void *bytes() const { return view_.buf; }
    size_t size() const { return static_cast<size_t>(view_.len); }

  private:
    Py_buffer view_;
    bool is_open_;
};

// "(2, 0, 1)"
template <typename Number> std::string text_of(const std::vector<Number> &numbers)
{
    std::string text = "(";
    for (size_t i = 0; i < numbers.size(); i++)
        text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
    return text + (numbers.size() == 1 ? ",)" : ")");
}
