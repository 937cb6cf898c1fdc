/* Writes small checkpoints for tests, right ones and wrong ones, into a folder of its own under $TMPDIR or
 * /tmp. Whatever fails here fails the test. */
#ifndef DAY0_TESTS_UNIT_CHECKPOINT_WRITER_H
#define DAY0_TESTS_UNIT_CHECKPOINT_WRITER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

enum { WRITER_PATH_BYTES = 512, WRITER_TENSORS_MAX = 1024 };

static inline void writer_make_folder(char folder[WRITER_PATH_BYTES])
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, WRITER_PATH_BYTES, "%.400s/day0-test-XXXXXX", parent ? parent : "/tmp");
    assert_non_null(mkdtemp(folder));
}

/* Removes the folder and the plain files in it. */
static inline void writer_remove_folder(const char *folder)
{
    char path[2 * WRITER_PATH_BYTES];
    DIR *open_folder = opendir(folder);
    assert_non_null(open_folder);
    for (struct dirent *entry; (entry = readdir(open_folder));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            assert_int_equal(unlink(path), 0);
    }
    closedir(open_folder);
    assert_int_equal(rmdir(folder), 0);
}

static inline void writer_file(const char *folder, const char *name, const void *bytes, size_t size)
{
    char path[2 * WRITER_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
}

/* A whole safetensors file in memory (free it): length, header, padding to 8, data. */
static inline unsigned char *writer_compose(const char *header, const void *data, size_t data_bytes, size_t *size)
{
    size_t header_bytes = strlen(header), padded = (header_bytes + 7) / 8 * 8;
    unsigned char *bytes = malloc(8 + padded + data_bytes);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    memset(bytes + 8, ' ', padded);
    memcpy(bytes + 8, header, header_bytes);
    if (data_bytes)
        memcpy(bytes + 8 + padded, data, data_bytes);
    *size = 8 + padded + data_bytes;
    return bytes;
}

/* A file with this header, right or wrong, and data of zeros. */
static inline void writer_header(const char *folder, const char *name, const char *header, size_t data_bytes)
{
    size_t size;
    void *zeros = calloc(1, data_bytes + 1);
    unsigned char *bytes = writer_compose(header, zeros, data_bytes, &size);
    writer_file(folder, name, bytes, size);
    free(bytes);
    free(zeros);
}

struct writer_tensor {
    char name[200], dtype[12];
    uint32_t rank;
    uint64_t shape[4];
    unsigned char *data; /* owned */
    size_t bytes;
};

struct writer {
    struct writer_tensor tensors[WRITER_TENSORS_MAX];
    size_t count;
};

static inline size_t writer_width(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 ? 4 : strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0 ? 2 : 1;
}

/* Adds a tensor of zeros; its data may be filled in through the pointer. */
static inline struct writer_tensor *writer_add(struct writer *writer, const char *name, const char *dtype,
                                               uint32_t rank, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    assert_true(writer->count < WRITER_TENSORS_MAX);
    struct writer_tensor *tensor = &writer->tensors[writer->count++];
    *tensor = (struct writer_tensor){.rank = rank, .shape = {a, b, c, d}, .bytes = writer_width(dtype)};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    snprintf(tensor->dtype, sizeof tensor->dtype, "%s", dtype);
    for (uint32_t i = 0; i < rank; i++)
        tensor->bytes *= tensor->shape[i];
    tensor->data = calloc(1, tensor->bytes + 1);
    assert_non_null(tensor->data);
    return tensor;
}

/* Saves the tensors first, first + step, ... to one file. */
static inline void writer_save(const struct writer *writer, const char *folder, const char *file, size_t first,
                               size_t step)
{
    char *header = NULL;
    size_t header_bytes, data_bytes = 0, size;
    FILE *out = open_memstream(&header, &header_bytes);
    fprintf(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    unsigned char *data = NULL;
    for (size_t i = first; i < writer->count; i += step) {
        const struct writer_tensor *tensor = &writer->tensors[i];
        fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor->name, tensor->dtype);
        for (uint32_t k = 0; k < tensor->rank; k++)
            fprintf(out, "%s%llu", k ? "," : "", (unsigned long long)tensor->shape[k]);
        fprintf(out, "],\"data_offsets\":[%zu,%zu]}", data_bytes, data_bytes + tensor->bytes);
        size_t room = (tensor->bytes + 7) / 8 * 8; /* keeps every tensor aligned, whatever lies before it */
        data = realloc(data, data_bytes + room + 1);
        assert_non_null(data);
        memset(data + data_bytes, 0, room);
        memcpy(data + data_bytes, tensor->data, tensor->bytes);
        data_bytes += room;
    }
    fprintf(out, "}");
    fclose(out);
    unsigned char *bytes = writer_compose(header, data, data_bytes, &size);
    writer_file(folder, file, bytes, size);
    free(bytes);
    free(header);
    free(data);
}

/* Saves to n shards, round robin, with their index. */
static inline void writer_save_shards(const struct writer *writer, const char *folder, size_t n)
{
    char *index = NULL, file[64];
    size_t index_bytes;
    FILE *out = open_memstream(&index, &index_bytes);
    fprintf(out, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (size_t i = 0; i < writer->count; i++)
        fprintf(out, "%s\n  \"%s\": \"model-%05zu-of-%06zu.safetensors\"", i ? "," : "", writer->tensors[i].name,
                i % n + 1, n);
    fprintf(out, "}}\n");
    fclose(out);
    writer_file(folder, "model.safetensors.index.json", index, index_bytes);
    free(index);
    for (size_t k = 0; k < n; k++) {
        snprintf(file, sizeof file, "model-%05zu-of-%06zu.safetensors", k + 1, n);
        writer_save(writer, folder, file, k, n);
    }
}

static inline void writer_fini(struct writer *writer)
{
    for (size_t i = 0; i < writer->count; i++)
        free(writer->tensors[i].data);
    writer->count = 0;
}

/* The sentence must hold every word of the list, which ends with NULL. */
static inline void writer_expect_words(const struct error *err, const char *const *words)
{
    for (; *words; words++)
        if (!strstr(err->text, *words))
            fail_msg("\"%s\" does not say \"%s\"", err->text, *words);
}

#endif
