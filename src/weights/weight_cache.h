/* Converted and packed weights, in a file that is mapped, or in memory.
 *
 * The file (little-endian, written by one version for itself):
 *
 *     header, table of records (offset, bytes, checksum), zeros to a multiple of 4 KiB, the records of conversion.h
 *
 * It is believed if magic, version and key are those expected, if it has the length that the header says, if the
 * header's checksum covers header and table, and if the table is the one that this conversion makes. The key hashes
 * name, size, time and header of every shard and the conversion's identity. Of the data, up to 64 MB in 16 records
 * spread over the file are checked at each start; weight_cache_verify checks all. What is not believed is written
 * anew.
 *
 * Writing goes to a temporary name, is synced, renamed, and the folder synced: under its own name a file is always
 * whole. A temporary file is locked by who writes it; one without a lock belongs to nobody and is removed. Where no
 * file can be written the weights are converted into memory, with a notice, and those that would only be packed are
 * used as they are stored: a second copy of them in memory would cost more than panels bring. For the same reason a
 * file that packs takes no more than half of the disk's free room. */
#ifndef DAY0_WEIGHTS_WEIGHT_CACHE_H
#define DAY0_WEIGHTS_WEIGHT_CACHE_H

#include "base/file.h"
#include "weights/conversion.h"

struct weight_cache {
    char path[PATH_BYTES_MAX]; /* of the file; empty: the weights are in memory of their own */
    char *map;                 /* NULL: nothing to convert */
    uint64_t map_bytes;
    const char *memory; /* of the records, in the map */
    bool was_written;   /* by this call */
};

struct weight_cache_request {
    const char *directory; /* of the checkpoint */
    const struct checkpoint *checkpoint;
    struct conversion *conversion;
    const char *suffix; /* of the file's name: tells conversions of one checkpoint apart */
    const char *folder; /* of the file; NULL: no file is read or written */
    const struct kernels *kernels;
    struct team *team;
    const struct watch *watch;
};

/* Finds the converted weights or makes them, and makes the conversion's matrices views of them. Owns the mapping until
 * weight_cache_close, which may be called twice and on a zeroed struct. */
NEEDS_CHECK enum status weight_cache_open(struct weight_cache *cache, const struct weight_cache_request *request,
                                          struct error *err);
void weight_cache_close(struct weight_cache *cache);

/* What is known of the file without making one. */
enum weight_cache_state {
    WEIGHT_CACHE_NOWHERE, /* there is no folder for it, or its path is too long */
    WEIGHT_CACHE_MISSING,
    WEIGHT_CACHE_UNUSABLE, /* another key, or damaged; *why says it */
    WEIGHT_CACHE_WHOLE,
};

/* Reads all of the file and checks every checksum. `path` and `why` [PATH_BYTES_MAX, ERROR_TEXT_BYTES]. */
NEEDS_CHECK enum status weight_cache_verify(enum weight_cache_state *state, char *path, char *why,
                                            const struct weight_cache_request *request, struct error *err);

#endif
