/* The folder for what is kept between runs: measured rates, converted weights. */
#ifndef DAY0_LAB_CACHE_FOLDER_H
#define DAY0_LAB_CACHE_FOLDER_H

#include <stdbool.h>

#include "base/file.h"

/* $DAY0_CACHE, else $XDG_CACHE_HOME/day0, else ~/.cache/day0, made if it is missing and can be. False if none of the
 * three says where: a variable counts if it is an absolute path. */
bool cache_folder(char out[PATH_BYTES_MAX]);

/* The same, kept as long as the program runs; NULL if there is none. */
const char *cache_folder_path(void);

#endif
