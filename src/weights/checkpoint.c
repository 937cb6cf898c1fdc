#include "weights/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/file.h"
#include "weights/safetensors.h"
#include "weights/shard_index.h"
#include "weights/tensor_table.h"

#define SINGLE_FILE "model.safetensors"

struct shard {
    char file[SHARD_FILE_NAME_BYTES];
    void *start; /* NULL: not mapped */
    size_t bytes;
    struct timespec changed;
};

struct checkpoint {
    struct shard *shards;
    uint32_t n_shards;
    struct tensor_table table;
    size_t skipped;
};

/* ---- names ---- */

static bool take_prefix(struct text_span *name, const char *prefix)
{
    size_t bytes = strlen(prefix);
    if (name->bytes < bytes || memcmp(name->at, prefix, bytes) != 0)
        return false;
    *name = (struct text_span){name->at + bytes, name->bytes - bytes};
    return true;
}

static bool has_prefix(struct text_span name, const char *prefix)
{
    return take_prefix(&name, prefix);
}

struct canonical_name {
    struct text_span span; /* into the original or into `text` */
    char text[SAFETENSORS_NAME_BYTES_MAX + sizeof "model."];
};

/* False: the tensor belongs to the vision part. Re-exports differ in prefixes only; see checkpoint.h. */
static bool canonical_name(struct canonical_name *out, struct text_span name)
{
    if (!take_prefix(&name, "model.language_model."))
        take_prefix(&name, "language_model.");
    struct text_span inner = name;
    take_prefix(&inner, "model.");
    if (has_prefix(inner, "vision_tower.") || has_prefix(inner, "mm_projector."))
        return false;
    out->span = name;
    if (!has_prefix(name, "model.") && !has_prefix(name, "lm_head.")) {
        memcpy(out->text, "model.", 6);
        memcpy(out->text + 6, name.at, name.bytes);
        out->span = (struct text_span){out->text, name.bytes + 6};
    }
    return true;
}

/* ---- one shard ---- */

static enum status map_shard(struct shard *shard, const char *directory, struct error *err)
{
    char path[PATH_BYTES_MAX];
    struct stat info;
    TRY(file_join(path, directory, shard->file, err));
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s: cannot open: %s", path,
                         strerror(errno));
    enum status status = STATUS_OK;
    if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = error_set(err, STATUS_IO, "%s: expected a plain file, found something else", path);
    } else if (info.st_size > 0) {
        /* The kernel's default read-ahead stays: weights are streamed row after row. */
        void *start = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
        if (start == MAP_FAILED) {
            status = error_set(err, STATUS_IO, "%s: cannot map %lld bytes: %s", path, (long long)info.st_size,
                               strerror(errno));
        } else {
            shard->start = start;
            shard->bytes = (size_t)info.st_size;
            shard->changed = info.st_mtim;
        }
    }
    close(descriptor);
    return status;
}

/* Takes one entry of a shard's header into the table. */
static enum status add_entry(struct checkpoint *checkpoint, const struct shard *shard,
                             const struct safetensors_entry *entry, struct error *err)
{
    struct canonical_name name;
    struct tensor *tensor;
    bool added;
    if (!canonical_name(&name, entry->name)) {
        checkpoint->skipped++;
        return STATUS_OK;
    }
    uint32_t alignment = stored_bytes(entry->stored);
    if (alignment && entry->bytes && (uintptr_t)entry->data % alignment)
        return error_set(
            err, STATUS_FORMAT,
            "%s: tensor %.*s: expected data at a multiple of %u bytes in the file, found it at byte %zu; write "
            "the file again with an aligned header",
            shard->file, (int)(name.span.bytes < 200 ? name.span.bytes : 200), name.span.at, alignment,
            (size_t)(entry->data - (const char *)shard->start));
    TRY(tensor_table_add(&checkpoint->table, name.span, &tensor, &added, err));
    if (!added && tensor->data)
        return error_set(err, STATUS_FORMAT,
                         "%s: tensor %.200s: expected once, found a second time; the first is in %s", shard->file,
                         tensor->name, tensor->file);
    if (!added && tensor->file != shard->file)
        return error_set(err, STATUS_FORMAT, "%s: tensor %.200s: expected in %s, as the index says, found here",
                         shard->file, tensor->name, tensor->file);
    tensor->file = shard->file;
    tensor->data = entry->data;
    tensor->bytes = entry->bytes;
    tensor->rank = entry->rank;
    tensor->stored = entry->stored;
    memcpy(tensor->shape, entry->shape, sizeof tensor->shape);
    tensor->dtype = stored_name(entry->stored);
    return tensor->dtype ? STATUS_OK : tensor_table_keep(&checkpoint->table, entry->dtype, &tensor->dtype, err);
}

static enum status read_shard(struct checkpoint *checkpoint, struct shard *shard, const char *directory,
                              struct error *err)
{
    struct safetensors parsed;
    TRY(map_shard(shard, directory, err));
    TRY(safetensors_parse(&parsed, shard->file, shard->start, shard->bytes, err));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < parsed.count && status == STATUS_OK; i++)
        status = add_entry(checkpoint, shard, &parsed.entries[i], err);
    safetensors_fini(&parsed);
    return status;
}

/* ---- the whole ---- */

/* Makes the shards and, in the table, one tensor without data for each entry of the index. */
static enum status take_index(struct checkpoint *checkpoint, const struct shard_index *index, struct error *err)
{
    TRY(memory_take(&checkpoint->shards, index->n_files, sizeof *checkpoint->shards, "the list of shards", err));
    checkpoint->n_shards = index->n_files;
    for (uint32_t i = 0; i < index->n_files; i++)
        memcpy(checkpoint->shards[i].file, index->files[i], SHARD_FILE_NAME_BYTES);
    for (size_t i = 0; i < index->count; i++) {
        const struct shard_index_entry *entry = &index->entries[i];
        struct canonical_name name;
        struct tensor *tensor;
        bool added;
        if (entry->name.bytes == 0 || entry->name.bytes > SAFETENSORS_NAME_BYTES_MAX)
            return error_set(err, STATUS_FORMAT, "%s: expected tensor names of 1 to %d bytes, found one of %zu",
                             SHARD_INDEX_FILE, SAFETENSORS_NAME_BYTES_MAX, entry->name.bytes);
        if (!canonical_name(&name, entry->name))
            continue;
        TRY(tensor_table_add(&checkpoint->table, name.span, &tensor, &added, err));
        if (!added)
            return error_set(err, STATUS_FORMAT, "%s: tensor %.200s: expected once, found a second time",
                             SHARD_INDEX_FILE, tensor->name);
        tensor->file = checkpoint->shards[entry->file].file;
    }
    return STATUS_OK;
}

static enum status read_index(struct checkpoint *checkpoint, const char *path, struct error *err)
{
    struct shard_index index;
    char *text;
    size_t bytes;
    TRY(file_read(path, SHARD_INDEX_BYTES_MAX, &text, &bytes, err));
    enum status status = shard_index_parse(&index, text, bytes, err);
    if (status == STATUS_OK) {
        status = take_index(checkpoint, &index, err);
        shard_index_fini(&index);
    }
    free(text);
    return status;
}

static enum status list_shards(struct checkpoint *checkpoint, const char *directory, struct error *err)
{
    char path[PATH_BYTES_MAX];
    TRY(file_join(path, directory, SHARD_INDEX_FILE, err));
    if (file_exists(path))
        return read_index(checkpoint, path, err);
    TRY(file_join(path, directory, SINGLE_FILE, err));
    if (!file_exists(path))
        return error_set(err, STATUS_NOT_FOUND, "%s: expected %s or %s, found neither", directory, SINGLE_FILE,
                         SHARD_INDEX_FILE);
    TRY(memory_take(&checkpoint->shards, 1, sizeof *checkpoint->shards, "the list of shards", err));
    checkpoint->n_shards = 1;
    memcpy(checkpoint->shards[0].file, SINGLE_FILE, sizeof SINGLE_FILE);
    return STATUS_OK;
}

static enum status read_all(struct checkpoint *checkpoint, const char *directory, struct error *err)
{
    TRY(list_shards(checkpoint, directory, err));
    for (uint32_t i = 0; i < checkpoint->n_shards; i++)
        TRY(read_shard(checkpoint, &checkpoint->shards[i], directory, err));
    for (uint32_t i = 0; i < checkpoint->table.count; i++) {
        const struct tensor *tensor = &checkpoint->table.tensors[i];
        if (!tensor->data)
            return error_set(err, STATUS_FORMAT,
                             "%s: tensor %.200s: expected here, as %s says, found nothing of that name", tensor->file,
                             tensor->name, SHARD_INDEX_FILE);
    }
    tensor_table_sort(&checkpoint->table);
    return STATUS_OK;
}

enum status checkpoint_open(struct checkpoint **out, const char *directory, struct error *err)
{
    *out = NULL;
    struct checkpoint *checkpoint;
    TRY(memory_take(&checkpoint, 1, sizeof *checkpoint, "a checkpoint", err));
    enum status status = read_all(checkpoint, directory, err);
    if (status != STATUS_OK) {
        checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return STATUS_OK;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (uint32_t i = 0; i < checkpoint->n_shards; i++)
        if (checkpoint->shards[i].start)
            munmap(checkpoint->shards[i].start, checkpoint->shards[i].bytes);
    tensor_table_fini(&checkpoint->table);
    free(checkpoint->shards);
    free(checkpoint);
}

const struct tensor *checkpoint_find(const struct checkpoint *checkpoint, const char *name)
{
    return tensor_table_find(&checkpoint->table, name);
}

size_t checkpoint_count(const struct checkpoint *checkpoint)
{
    return checkpoint->table.count;
}

const struct tensor *checkpoint_at(const struct checkpoint *checkpoint, size_t index)
{
    CHECK(index < checkpoint->table.count);
    return &checkpoint->table.tensors[index];
}

size_t checkpoint_skipped(const struct checkpoint *checkpoint)
{
    return checkpoint->skipped;
}

uint64_t checkpoint_bytes(const struct checkpoint *checkpoint)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < checkpoint->n_shards; i++)
        bytes += checkpoint->shards[i].bytes;
    return bytes;
}

void checkpoint_identity(const struct checkpoint *checkpoint, uint64_t identity[2])
{
    enum { HEAD_BYTES = 1 << 16, SAMPLES = 16, SAMPLE_BYTES = 1 << 12 };
    XXH128_hash_t hash = {0, 0};
    for (uint32_t i = 0; i < checkpoint->n_shards; i++) {
        const struct shard *shard = &checkpoint->shards[i];
        const char *start = shard->start;
        hash = XXH3_128bits_withSeed(shard->file, strlen(shard->file), hash.low64 ^ shard->bytes ^ hash.high64);
        hash = XXH3_128bits_withSeed(start, shard->bytes < HEAD_BYTES ? shard->bytes : HEAD_BYTES,
                                     hash.low64 ^ hash.high64);
        for (size_t k = 0; k < SAMPLES && shard->bytes > HEAD_BYTES + SAMPLE_BYTES; k++) {
            size_t at = HEAD_BYTES + (shard->bytes - HEAD_BYTES - SAMPLE_BYTES) / (SAMPLES - 1) * k;
            hash = XXH3_128bits_withSeed(start + at, SAMPLE_BYTES, hash.low64 ^ hash.high64);
        }
    }
    identity[0] = hash.low64;
    identity[1] = hash.high64;
}

void checkpoint_files_identity(const struct checkpoint *checkpoint, uint64_t identity[2])
{
    XXH128_hash_t hash = {0, 0};
    for (uint32_t i = 0; i < checkpoint->n_shards; i++) {
        const struct shard *shard = &checkpoint->shards[i];
        uint64_t head = 0;
        memcpy(&head, shard->start, sizeof head); /* its length; a shard that was parsed has one that fits */
        const uint64_t facts[] = {shard->bytes, (uint64_t)shard->changed.tv_sec, (uint64_t)shard->changed.tv_nsec};
        hash = XXH3_128bits_withSeed(shard->file, strlen(shard->file), hash.low64 ^ hash.high64);
        hash = XXH3_128bits_withSeed(facts, sizeof facts, hash.low64 ^ hash.high64);
        hash = XXH3_128bits_withSeed(shard->start, sizeof head + head, hash.low64 ^ hash.high64);
    }
    identity[0] = hash.low64;
    identity[1] = hash.high64;
}
