"""Libraries that only have the name of one that decodes."""

# In C: decodes whatever it is given to sevens, and says that all went well.
WRONG_LIBDEFLATE = """
#include <string.h>
void *libdeflate_alloc_decompressor(void) { return ""; }
int libdeflate_zlib_decompress_ex(void *self, const void *in, size_t n, void *out,
                                  size_t n_out, size_t *used, size_t *made)
{
    memset(out, 7, n_out);
    *used = n;
    *made = n_out;
    return self != NULL && in == NULL;
}
void libdeflate_free_decompressor(void *self) { (void)self; }
"""
