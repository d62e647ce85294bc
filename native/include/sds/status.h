/* Status codes of the native core.
 *
 * One list gives the enum, the text and (through the binding) the Python exception. Every
 * function of the core that can fail returns a status; outputs go through pointers.
 */
#ifndef SDS_STATUS_H
#define SDS_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* XX(name, value, text, Python exception in sds.errors) */
#define SDS_STATUS_MAP(XX)                                                                         \
    XX(OK, 0, "success", "")                                                                       \
    XX(EINVAL, -1, "argument out of range", "SdsValueError")                                       \
    XX(EBOUNDS, -2, "selection reaches outside its dataspace", "SelectionError")                   \
    XX(EOVERFLOW, -3, "byte offset does not fit in 64 bits", "LayoutError")                        \
    XX(ENOMEM, -4, "out of memory", "MemoryError")                                                 \
    XX(EIO, -5, "input/output error", "OSError")                                                   \
    XX(ESHORT, -6, "file ends before the data that was asked for", "TruncatedFileError")           \
    XX(EFORMAT, -7, "not a file of this format, or damaged", "FormatError")                        \
    XX(EVERSION, -8, "of a format version that this SDS does not read", "FormatVersionError")      \
    XX(ELIMIT, -9, "a stated limit was reached", "LimitError")                                     \
    XX(ENOENT, -10, "no such entry", "NotFoundError")

typedef enum sds_status {
#define XX(name, value, text, exception) SDS_##name = (value),
    SDS_STATUS_MAP(XX)
#undef XX
} sds_status;

/* Return the text of a status; never NULL. */
const char *sds_status_text(sds_status status);

#ifdef __cplusplus
}
#endif
#endif
