#include "lab/synth.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "lab/progress.h"
#include "lab/synth_tensors.h"
#include "text/tokenizer.h"
#include "weights/shard_index.h"

enum {
    CONFIG_BYTES_MAX = 16 << 20,
    TOKENIZER_BYTES_MAX = 256 << 20,
    BLOCK_BYTES = VALUES_STEP_BYTES << 13,
    MEGABYTE = 1000000
};

struct synth {
    const struct synth_options *options;
    char temporary[PATH_BYTES_MAX]; /* the directory while it is being filled */
    char *config_text;
    size_t config_bytes;
    struct config config;
    struct synth_tensors tensors;
    struct values *values;
    char *block;
    struct progress progress;
    uint64_t written;
};

static enum status read_config(struct synth *synth, struct error *err)
{
    const char *path = synth->options->config_path;
    struct config_options accept = {.accept_unknown = true};
    TRY(file_read(path, CONFIG_BYTES_MAX, &synth->config_text, &synth->config_bytes, err));
    enum status status = config_parse(&synth->config, synth->config_text, synth->config_bytes, &accept, err);
    return status == STATUS_OK ? STATUS_OK : error_prefix(err, "%s", path);
}

/* ---- the directory ---- */

static enum status refuse_used(const char *directory, struct error *err)
{
    DIR *open_directory = opendir(directory);
    if (!open_directory) {
        if (errno == ENOENT)
            return STATUS_OK;
        return error_set(err, STATUS_IO, "%s: cannot be made: %s", directory, strerror(errno));
    }
    bool empty = true;
    for (struct dirent *entry; (entry = readdir(open_directory));)
        empty = empty && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
    closedir(open_directory);
    return empty
               ? STATUS_OK
               : error_set(err, STATUS_ARGUMENT, "%s: expected a new or empty directory, found files in it", directory);
}

static enum status make_temporary(struct synth *synth, struct error *err)
{
    const char *directory = synth->options->directory;
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/')
        length--;
    if (snprintf(synth->temporary, sizeof synth->temporary, "%.*s.tmp-%ld", (int)length, directory, (long)getpid()) >=
        (int)sizeof synth->temporary)
        return error_set(err, STATUS_ARGUMENT, "%.200s...: the path is too long", directory);
    if (mkdir(synth->temporary, 0777) != 0) {
        int why = errno;
        synth->temporary[0] = 0;
        return error_set(err, STATUS_IO, "%s: cannot be made: %s", directory, strerror(why));
    }
    struct statvfs disk;
    if (statvfs(synth->temporary, &disk) == 0 &&
        (double)disk.f_bavail * (double)disk.f_frsize < (double)synth->tensors.bytes)
        return error_set(err, STATUS_IO, "%s: %.1f GB are needed, the disk has %.1f GB left", directory,
                         (double)synth->tensors.bytes / 1e9, (double)disk.f_bavail * (double)disk.f_frsize / 1e9);
    return STATUS_OK;
}

static void remove_temporary(const struct synth *synth)
{
    char path[PATH_BYTES_MAX];
    DIR *open_directory = synth->temporary[0] ? opendir(synth->temporary) : NULL;
    if (!open_directory)
        return;
    for (struct dirent *entry; (entry = readdir(open_directory));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            file_join(path, synth->temporary, entry->d_name, NULL) == STATUS_OK)
            unlink(path);
    closedir(open_directory);
    rmdir(synth->temporary);
}

/* ---- files ---- */

static enum status write_tensor(struct synth *synth, struct safetensors_writer *writer,
                                const struct synth_tensor *tensor, struct error *err)
{
    uint64_t left = safetensors_spec_bytes(&tensor->spec);
    /* Codes and scales of one matrix differ by name; nothing else may depend on the place. */
    synth_values_begin(synth->values, &tensor->recipe, synth->options->seed, tensor->spec.name);
    while (left > 0) {
        size_t size = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
        synth_values_take(synth->values, synth->block, size);
        TRY(safetensors_write_data(writer, synth->block, size, err));
        left -= size;
        synth->written += size;
        progress_set(&synth->progress, synth->written / MEGABYTE);
    }
    return STATUS_OK;
}

static void file_name(char out[SHARD_FILE_NAME_BYTES], const struct synth *synth, uint32_t file)
{
    if (synth->tensors.n_files == 1)
        snprintf(out, SHARD_FILE_NAME_BYTES, "model.safetensors");
    else
        snprintf(out, SHARD_FILE_NAME_BYTES, "model-%05u-of-%06u.safetensors", file + 1, synth->tensors.n_files);
}

static enum status write_file(struct synth *synth, size_t first, size_t count, struct error *err)
{
    char name[SHARD_FILE_NAME_BYTES], path[PATH_BYTES_MAX];
    const struct synth_tensor *list = synth->tensors.list + first;
    struct safetensors_spec *specs;
    struct safetensors_writer writer;
    file_name(name, synth, list->file);
    TRY(file_join(path, synth->temporary, name, err));
    TRY(memory_take(&specs, count, sizeof *specs, "a file's header", err));
    for (size_t i = 0; i < count; i++)
        specs[i] = list[i].spec;
    enum status status = safetensors_write_begin(&writer, path, specs, count, err);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = write_tensor(synth, &writer, &list[i], err);
    free(specs);
    return safetensors_write_end(&writer, status, err);
}

static enum status write_files(struct synth *synth, struct error *err)
{
    const struct synth_tensors *tensors = &synth->tensors;
    for (size_t first = 0, end; first < tensors->count; first = end) {
        for (end = first; end < tensors->count && tensors->list[end].file == tensors->list[first].file;)
            end++;
        TRY(write_file(synth, first, end - first, err));
    }
    return STATUS_OK;
}

static enum status write_index(const struct synth *synth, struct error *err)
{
    char path[PATH_BYTES_MAX], temporary[PATH_BYTES_MAX], name[SHARD_FILE_NAME_BYTES];
    FILE *out;
    if (synth->tensors.n_files == 1)
        return STATUS_OK;
    TRY(file_join(path, synth->temporary, SHARD_INDEX_FILE, err));
    TRY(output_open(&out, temporary, path, err));
    fprintf(out, "{\"metadata\":{\"total_size\":%llu},\"weight_map\":{", (unsigned long long)synth->tensors.bytes);
    for (size_t i = 0; i < synth->tensors.count; i++) {
        file_name(name, synth, synth->tensors.list[i].file);
        fprintf(out, "%s\n\"%s\":\"%s\"", i ? "," : "", synth->tensors.list[i].spec.name, name);
    }
    fprintf(out, "}}\n");
    return output_close(out, temporary, path, STATUS_OK, err);
}

static enum status copy_file(const struct synth *synth, const char *from, const char *name, struct error *err)
{
    char path[PATH_BYTES_MAX], *bytes;
    size_t size;
    TRY(file_join(path, from, name, err));
    TRY(file_read(path, TOKENIZER_BYTES_MAX, &bytes, &size, err));
    enum status status = file_join(path, synth->temporary, name, err);
    if (status == STATUS_OK)
        status = file_write(path, bytes, size, err);
    free(bytes);
    return status;
}

static enum status copy_tokenizer(const struct synth *synth, bool *copied, struct error *err)
{
    const char *from = synth->options->tokenizer;
    struct tokenizer *tokenizer;
    if (!from)
        return STATUS_OK;
    enum status status = tokenizer_open(&tokenizer, from, err);
    if (status != STATUS_OK)
        return synth->options->tokenizer_optional ? STATUS_OK : status;
    uint32_t ids = (uint32_t)tokenizer_vocab_size(tokenizer);
    tokenizer_close(tokenizer);
    if (ids > synth->config.vocab_size) {
        if (synth->options->tokenizer_optional)
            return STATUS_OK;
        return error_set(err, STATUS_ARGUMENT,
                         "%s: a tokenizer of at most vocab_size %u ids was wanted, this one has %u", from,
                         synth->config.vocab_size, ids);
    }
    TRY(copy_file(synth, from, "tiktoken.model", err));
    TRY(copy_file(synth, from, "tokenizer_config.json", err));
    *copied = true;
    return STATUS_OK;
}

static enum status fill_directory(struct synth *synth, struct synth_result *result, struct error *err)
{
    char path[PATH_BYTES_MAX];
    const char *directory = synth->options->directory;
    TRY(make_temporary(synth, err));
    TRY(copy_tokenizer(synth, &result->has_tokenizer, err));
    TRY(write_files(synth, err));
    TRY(write_index(synth, err));
    TRY(file_join(path, synth->temporary, "config.json", err));
    TRY(file_write(path, synth->config_text, synth->config_bytes, err));
    TRY(refuse_used(directory, err)); /* it may have changed meanwhile */
    if (rename(synth->temporary, directory) != 0)
        return error_set(err, STATUS_IO, "%s: cannot be made: %s", directory, strerror(errno));
    return STATUS_OK;
}

static enum status run(struct synth *synth, struct synth_result *result, struct error *err)
{
    TRY(refuse_used(synth->options->directory, err));
    TRY(read_config(synth, err));
    TRY(synth_tensors_init(&synth->tensors, &synth->config,
                           synth_packs_experts(synth->config_text, synth->config_bytes), synth->options->shard_bytes,
                           err));
    TRY(memory_take(&synth->values, 1, sizeof *synth->values, "tables of random values", err));
    TRY(memory_take(&synth->block, 1, BLOCK_BYTES, "a block of random values", err));
    synth_values_init(synth->values);
    synth->progress = progress_begin("synth, MB", synth->tensors.bytes / MEGABYTE);
    enum status status = fill_directory(synth, result, err);
    progress_end(&synth->progress);
    if (status != STATUS_OK)
        remove_temporary(synth);
    result->n_tensors = synth->tensors.count;
    result->n_files = synth->tensors.n_files;
    result->bytes = synth->tensors.bytes;
    return status;
}

enum status synth_checkpoint(const struct synth_options *options, struct synth_result *result, struct error *err)
{
    struct synth synth = {.options = options};
    double started = clock_seconds();
    *result = (struct synth_result){0};
    enum status status = run(&synth, result, err);
    synth_tensors_fini(&synth.tensors);
    free(synth.values);
    free(synth.block);
    free(synth.config_text);
    result->seconds = clock_seconds() - started;
    return status;
}
