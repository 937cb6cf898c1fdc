#include "weights/weight_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/arena.h"

#define MAGIC "day0wgts"
#define FILE_PREFIX "weights-"
#define TEMPORARY_MARK ".tmp-"

enum {
    CACHE_VERSION = 1,
    SAMPLED_RECORDS = 16, /* checked at every start */
    SAMPLED_BYTES_MAX = 64 << 20,
    FOLDER_NAME_BYTES = 48, /* of the checkpoint's folder in the file's name */
};

struct cache_header {
    char magic[8];
    uint32_t version, entry_bytes;
    uint64_t n_records, file_bytes;
    uint64_t key[2];
    uint64_t checksum[2]; /* of this header with zeros here, and of the table */
};

struct cache_entry {
    uint64_t offset, bytes; /* in the file */
    uint64_t checksum;      /* XXH3 */
};

static uint64_t data_offset(const struct conversion *c)
{
    uint64_t head = sizeof(struct cache_header) + c->n_records * sizeof(struct cache_entry);
    return (head + CONVERSION_ALIGNMENT - 1) / CONVERSION_ALIGNMENT * CONVERSION_ALIGNMENT;
}

static void make_key(const struct weight_cache_request *r, uint64_t key[2])
{
    uint64_t parts[4];
    checkpoint_files_identity(r->checkpoint, parts);
    conversion_identity(r->conversion, parts + 2);
    XXH128_hash_t hash = XXH3_128bits(parts, sizeof parts);
    key[0] = hash.low64;
    key[1] = hash.high64;
}

static struct cache_header make_header(const struct weight_cache_request *r)
{
    struct cache_header h = {.version = CACHE_VERSION,
                             .entry_bytes = sizeof(struct cache_entry),
                             .n_records = r->conversion->n_records,
                             .file_bytes = data_offset(r->conversion) + r->conversion->bytes};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    make_key(r, h.key);
    return h;
}

static void head_checksum(const struct cache_header *header, const struct cache_entry *table, uint64_t out[2])
{
    struct cache_header blank = *header;
    memset(blank.checksum, 0, sizeof blank.checksum);
    XXH128_hash_t hash = XXH3_128bits(&blank, sizeof blank);
    hash = XXH3_128bits_withSeed(table, header->n_records * sizeof *table, hash.low64 ^ hash.high64);
    out[0] = hash.low64;
    out[1] = hash.high64;
}

/* ---- reading ---- */

/* The conversion's records as the file has them, or why it is not believed. */
static const char *fault_of_head(const char *map, uint64_t bytes, const struct weight_cache_request *r)
{
    struct cache_header want = make_header(r), found;
    const struct cache_entry *table = (const void *)(map + sizeof found);
    uint64_t sum[2];
    if (bytes < sizeof found)
        return "it is cut off";
    memcpy(&found, map, sizeof found);
    if (memcmp(found.magic, want.magic, sizeof want.magic) != 0)
        return "it is no weight cache of day0";
    if (found.version != want.version || found.entry_bytes != want.entry_bytes)
        return "another version of day0 wrote it";
    if (memcmp(found.key, want.key, sizeof want.key) != 0)
        return "it was made of other weights";
    if (found.n_records != want.n_records || found.file_bytes != want.file_bytes || bytes != want.file_bytes)
        return "its length is wrong";
    head_checksum(&found, table, sum);
    if (memcmp(found.checksum, sum, sizeof sum) != 0)
        return "the checksum of its header is wrong";
    for (size_t i = 0; i < want.n_records; i++) {
        const struct conversion_record *record = &r->conversion->records[i];
        if (table[i].offset != data_offset(r->conversion) + record->offset || table[i].bytes != record->bytes)
            return "its table is wrong";
    }
    return NULL;
}

static bool record_is_whole(const char *map, size_t i)
{
    const struct cache_entry *entry = (const struct cache_entry *)(const void *)(map + sizeof(struct cache_header)) + i;
    return XXH3_64bits(map + entry->offset, entry->bytes) == entry->checksum;
}

static const char *fault_of_sample(const char *map, const struct conversion *c)
{
    size_t n = c->n_records < SAMPLED_RECORDS ? c->n_records : SAMPLED_RECORDS;
    uint64_t bytes = 0;
    for (size_t k = 0; k < n && bytes < SAMPLED_BYTES_MAX; k++) {
        size_t i = n > 1 ? k * (c->n_records - 1) / (n - 1) : 0;
        bytes += c->records[i].bytes;
        if (!record_is_whole(map, i))
            return "its data are damaged";
    }
    return NULL;
}

/* Maps the file; NULL with errno set if it cannot be. */
static char *map_file(int descriptor, uint64_t *bytes)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0)
        return errno = errno ? errno : EINVAL, NULL;
    *bytes = (uint64_t)info.st_size;
    void *map = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    return map == MAP_FAILED ? NULL : map;
}

static void take_map(struct weight_cache *cache, const struct weight_cache_request *r, char *map, uint64_t bytes)
{
    cache->map = map;
    cache->map_bytes = bytes;
    cache->memory = map + (cache->path[0] ? data_offset(r->conversion) : 0);
    conversion_place(r->conversion, cache->memory);
}

/* The map of the file at `path`, or NULL and why there is none; *why is NULL if there is no file. */
static char *read_file(const char *path, const struct weight_cache_request *r, uint64_t *bytes, const char **why)
{
    *why = NULL;
    errno = 0;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 && (errno == ENOENT || errno == ENOTDIR))
        return NULL;
    char *map = descriptor < 0 ? NULL : map_file(descriptor, bytes);
    if (descriptor >= 0)
        close(descriptor);
    if (!map)
        return *why = "it cannot be read", NULL;
    *why = fault_of_head(map, *bytes, r);
    if (!*why)
        *why = fault_of_sample(map, r->conversion);
    if (*why)
        munmap(map, *bytes);
    return *why ? NULL : map;
}

/* ---- writing ---- */

/* Temporary files that nobody holds a lock on were left by a process that died. */
static void remove_stale(const char *folder)
{
    char path[PATH_BYTES_MAX];
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (strncmp(entry->d_name, FILE_PREFIX, strlen(FILE_PREFIX)) != 0 || !strstr(entry->d_name, TEMPORARY_MARK) ||
            file_join(path, folder, entry->d_name, NULL) != STATUS_OK)
            continue;
        int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (descriptor < 0)
            continue;
        if (flock(descriptor, LOCK_EX | LOCK_NB) == 0)
            unlink(path);
        close(descriptor);
    }
    if (list)
        closedir(list);
}

/* A new file of this process alone. Between its making and its lock another process may have taken it for stale. */
static int open_temporary(char *temporary, const char *path)
{
    for (int attempt = 0; attempt < 16; attempt++) {
        struct stat info;
        if (snprintf(temporary, PATH_BYTES_MAX, "%s%sXXXXXX", path, TEMPORARY_MARK) >= PATH_BYTES_MAX)
            return errno = ENAMETOOLONG, -1;
        int descriptor = mkostemp(temporary, O_CLOEXEC);
        if (descriptor < 0)
            return -1;
        if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 && fstat(descriptor, &info) == 0 && info.st_nlink > 0)
            return descriptor;
        close(descriptor);
    }
    return errno = EBUSY, -1;
}

/* All of the file's room is taken before anything is written: a full disk must not show in the midst of a mapping. */
static bool take_room(int descriptor, uint64_t bytes, const struct conversion *c)
{
    struct statvfs disk;
    if (conversion_packed_bytes(c) > 0 && fstatvfs(descriptor, &disk) == 0 &&
        bytes > (uint64_t)disk.f_bavail * disk.f_frsize / 2)
        return errno = ENOSPC, false;
    errno = posix_fallocate(descriptor, 0, (off_t)bytes);
    return errno == 0;
}

static void folder_of(char folder[PATH_BYTES_MAX], const char *path)
{
    snprintf(folder, PATH_BYTES_MAX, "%s", path);
    *strrchr(folder, '/') = 0;
}

/* Some file systems cannot; what may be lost is the new name, not the file. */
static void sync_folder(const char *path)
{
    char folder[PATH_BYTES_MAX];
    folder_of(folder, path);
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)fsync(descriptor);
    close(descriptor);
}

struct writing {
    const struct conversion *conversion;
    struct cache_entry *table;
    int descriptor;
    uint64_t data_offset;
};

static void record_done(void *context, size_t i, const char *bytes)
{
    struct writing *w = context;
    const struct conversion_record *record = &w->conversion->records[i];
    w->table[i] =
        (struct cache_entry){w->data_offset + record->offset, record->bytes, XXH3_64bits(bytes, record->bytes)};
    /* To the disk now, or all of it waits for the sync at the end. */
    (void)sync_file_range(w->descriptor, (off_t)w->table[i].offset, (off_t)record->bytes, SYNC_FILE_RANGE_WRITE);
}

/* Fills the file that `descriptor` has open. */
static enum status fill_file(int descriptor, const struct weight_cache_request *r, int *why, struct error *err)
{
    struct cache_header header = make_header(r);
    char *map = mmap(NULL, header.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (map == MAP_FAILED)
        return *why = errno, STATUS_OK;
    struct writing w = {.conversion = r->conversion,
                        .table = (struct cache_entry *)(void *)(map + sizeof header),
                        .descriptor = descriptor,
                        .data_offset = data_offset(r->conversion)};
    enum status status =
        conversion_run(r->conversion, map + w.data_offset, r->kernels, r->team, r->watch, record_done, &w, err);
    head_checksum(&header, w.table, header.checksum);
    memcpy(map, &header, sizeof header);
    munmap(map, header.file_bytes);
    if (status == STATUS_OK && fsync(descriptor) != 0)
        *why = errno;
    return status;
}

/* Makes the file and maps it. STATUS_OK with *why set: it could not be written, for that errno. */
static enum status write_file(struct weight_cache *cache, const struct weight_cache_request *r, int *why,
                              struct error *err)
{
    char temporary[PATH_BYTES_MAX], *map = NULL;
    uint64_t bytes = data_offset(r->conversion) + r->conversion->bytes;
    enum status status = STATUS_OK;
    *why = 0;
    int descriptor = open_temporary(temporary, cache->path);
    if (descriptor < 0)
        return *why = errno, STATUS_OK;
    if (!take_room(descriptor, bytes, r->conversion) || fchmod(descriptor, 0644) != 0)
        *why = errno;
    else
        status = fill_file(descriptor, r, why, err);
    if (status == STATUS_OK && *why == 0 &&
        (!(map = map_file(descriptor, &bytes)) || rename(temporary, cache->path) != 0))
        *why = errno;
    if (status != STATUS_OK || *why) {
        unlink(temporary);
        if (map)
            munmap(map, bytes);
    } else {
        sync_folder(cache->path);
        take_map(cache, r, map, bytes);
    }
    close(descriptor);
    return status;
}

/* ---- in memory ---- */

static enum status convert_in_memory(struct weight_cache *cache, const struct weight_cache_request *r,
                                     struct error *err)
{
    conversion_leave_stored(r->conversion);
    uint64_t bytes = r->conversion->bytes;
    cache->path[0] = 0;
    if (bytes == 0)
        return STATUS_OK;
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return error_set(err, STATUS_MEMORY, "cannot take %.2f GB for converted weights: %s", (double)bytes / 1e9,
                         strerror(errno));
    (void)madvise(map, bytes, MADV_HUGEPAGE);
    cache->map = map;
    cache->map_bytes = bytes;
    TRY(conversion_run(r->conversion, map, r->kernels, r->team, r->watch, NULL, NULL, err));
    take_map(cache, r, map, bytes);
    return STATUS_OK;
}

/* ---- the whole ---- */

/* FOLDER/weights-NAME-HASH-SUFFIX, of the checkpoint's folder; false if there is no place for it. */
static bool make_path(char out[PATH_BYTES_MAX], const struct weight_cache_request *r)
{
    char name[FOLDER_NAME_BYTES];
    char *real = r->folder ? realpath(r->directory, NULL) : NULL;
    if (!real)
        return false;
    file_safe_name(name, sizeof name, strrchr(real, '/') + 1);
    uint64_t hash = XXH3_64bits(real, strlen(real));
    free(real);
    return snprintf(out, PATH_BYTES_MAX, "%s/%s%s-%016llx-%s", r->folder, FILE_PREFIX, name, (unsigned long long)hash,
                    r->suffix) < PATH_BYTES_MAX;
}

static void notice(const struct weight_cache_request *r, const char *path, const char *why, const char *therefore)
{
    char sentence[PATH_BYTES_MAX + ERROR_TEXT_BYTES];
    snprintf(sentence, sizeof sentence, "weight cache %s: %s; %s", path, why, therefore);
    watch_notice(r->watch, sentence);
}

/* What becomes of weights that no file can be had for. */
static const char *fallback_of(const struct conversion *c)
{
    bool converts = conversion_totals(c, false).bytes + conversion_totals(c, true).bytes > 0;
    return converts ? "the weights are converted into memory, again at every start"
                    : "the weights are used as they are stored, not in panels";
}

enum status weight_cache_open(struct weight_cache *cache, const struct weight_cache_request *request, struct error *err)
{
    *cache = (struct weight_cache){0};
    if (request->conversion->n_records == 0)
        return STATUS_OK;
    if (!request->folder)
        return convert_in_memory(cache, request, err);
    if (!make_path(cache->path, request)) {
        notice(request, request->folder, "no path for it can be made", fallback_of(request->conversion));
        return convert_in_memory(cache, request, err);
    }
    const char *fault;
    uint64_t bytes;
    char *map = read_file(cache->path, request, &bytes, &fault);
    if (map) {
        take_map(cache, request, map, bytes);
        return STATUS_OK;
    }
    if (fault)
        notice(request, cache->path, fault, "it is written anew");
    char folder[PATH_BYTES_MAX];
    folder_of(folder, cache->path);
    remove_stale(folder);
    int why;
    TRY(write_file(cache, request, &why, err));
    cache->was_written = why == 0;
    if (why == 0)
        return STATUS_OK;
    char sentence[200];
    snprintf(sentence, sizeof sentence, "cannot write its %.2f GB: %s", (double)request->conversion->bytes / 1e9,
             strerror(why));
    notice(request, cache->path, sentence, fallback_of(request->conversion));
    return convert_in_memory(cache, request, err);
}

/* ---- verifying ---- */

struct verification {
    const struct weight_cache_request *request;
    const char *map;
    _Atomic size_t next, n_bad;
    _Atomic uint64_t n_bytes;
    _Atomic bool stopped;
};

static void verify_worker(void *context, unsigned worker)
{
    struct verification *v = context;
    const struct conversion *c = v->request->conversion;
    for (size_t i; !v->stopped && (i = atomic_fetch_add(&v->next, 1)) < c->n_records;) {
        v->n_bad += !record_is_whole(v->map, i);
        uint64_t n = atomic_fetch_add(&v->n_bytes, c->records[i].bytes);
        if (worker == 0 && watch_progress(v->request->watch, "checking the weight cache", n, c->bytes))
            v->stopped = true;
    }
}

enum status weight_cache_verify(enum weight_cache_state *state, char *path, char *why,
                                const struct weight_cache_request *request, struct error *err)
{
    const char *fault;
    uint64_t bytes;
    path[0] = why[0] = 0;
    *state = WEIGHT_CACHE_NOWHERE;
    if (!make_path(path, request))
        return STATUS_OK;
    char *map = read_file(path, request, &bytes, &fault);
    *state = map ? WEIGHT_CACHE_WHOLE : fault ? WEIGHT_CACHE_UNUSABLE : WEIGHT_CACHE_MISSING;
    snprintf(why, ERROR_TEXT_BYTES, "%s", fault ? fault : "");
    if (!map)
        return STATUS_OK;
    struct verification v = {.request = request, .map = map};
    team_run(request->team, verify_worker, &v);
    munmap(map, bytes);
    if (v.n_bad > 0) {
        *state = WEIGHT_CACHE_UNUSABLE;
        snprintf(why, ERROR_TEXT_BYTES, "its data are damaged: the checksums of %zu of %zu records are wrong", v.n_bad,
                 request->conversion->n_records);
    }
    return v.stopped ? error_set(err, STATUS_INTERRUPTED, "checking the weight cache was stopped") : STATUS_OK;
}

void weight_cache_close(struct weight_cache *cache)
{
    if (cache->map)
        munmap(cache->map, cache->map_bytes);
    *cache = (struct weight_cache){0};
}
