/* Parts of the preloaded library (preload.c). */
#pragma once

/* Where the text goes on behind the prefix; NULL where it does not begin with it. */
char *behind(char *text, const char *prefix);

/* The C library's answer to getenv. */
char *find_variable(const char *name);

/* Note in the home that an HDF5 with this address in it starts, and that nothing of it is traced,
 * for it asks for no connector. It takes no lock of the process, no memory and no signal, and is no
 * place where a thread is cancelled; errno is as before. */
void note_untraced(const void *caller);
