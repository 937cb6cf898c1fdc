/* Whole small files (configs, tokenizers, requests), and the joining of paths. */
#ifndef DAY0_BASE_FILE_H
#define DAY0_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { PATH_BYTES_MAX = 4096 };

/* Reads `path` ("-" is standard input) into *data_out, followed by one zero byte that is not counted. Gives the
 * memory to the caller, who frees it. Fails if it is longer than `bytes_max`. */
NEEDS_CHECK enum status file_read(const char *path, size_t bytes_max, char **data_out, size_t *size_out,
                                  struct error *err);

/* Writes the bytes to a temporary name beside `path`, then renames: never half a file. */
NEEDS_CHECK enum status file_write(const char *path, const void *data, size_t size, struct error *err);

/* `directory/name` into `out` of PATH_BYTES_MAX bytes. */
NEEDS_CHECK enum status file_join(char *out, const char *directory, const char *name, struct error *err);

/* `text`, cut to `size` - 1 characters, with all that is not a letter, digit, dot or dash turned into '_'. */
void file_safe_name(char *out, size_t size, const char *text);

bool file_exists(const char *path);

#endif
