#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/ranks.h"
#include "text/specials.h"

static const char model_name[] = "tiktoken.model", config_name[] = "tokenizer_config.json";

struct tokenizer {
    struct ranks ranks;
    struct specials specials;
    struct pretokenizer *pretokenizer;
};

enum status tokenizer_open_contents(struct tokenizer **out, struct byte_span model, struct byte_span config,
                                    struct error *err)
{
    *out = NULL;
    struct tokenizer *tokenizer;
    TRY(memory_take(&tokenizer, 1, sizeof *tokenizer, "the tokenizer", err));
    enum status status = ranks_init(&tokenizer->ranks, model.data, model.bytes, model_name, err);
    if (status == STATUS_OK)
        status = specials_init(&tokenizer->specials, config.data, config.bytes, (int32_t)tokenizer->ranks.count,
                               config_name, err);
    if (status == STATUS_OK)
        status = pretokenizer_open(&tokenizer->pretokenizer, err);
    if (status != STATUS_OK) {
        tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return STATUS_OK;
}

static enum status read_beside(const char *directory, const char *name, size_t bytes_max, char **data, size_t *bytes,
                               struct error *err)
{
    char path[PATH_BYTES_MAX];
    TRY(file_join(path, directory, name, err));
    return file_read(path, bytes_max, data, bytes, err);
}

enum status tokenizer_open(struct tokenizer **out, const char *directory, struct error *err)
{
    char *model = NULL, *config = NULL;
    size_t model_bytes, config_bytes;
    *out = NULL;
    TRY(read_beside(directory, model_name, RANKS_FILE_BYTES_MAX, &model, &model_bytes, err));
    enum status status = read_beside(directory, config_name, SPECIALS_FILE_BYTES_MAX, &config, &config_bytes, err);
    if (status == STATUS_OK) {
        status = tokenizer_open_contents(out, (struct byte_span){model, model_bytes},
                                         (struct byte_span){config, config_bytes}, err);
        if (status != STATUS_OK)
            error_prefix(err, "%s", directory);
    }
    free(model);
    free(config);
    return status;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    pretokenizer_close(tokenizer->pretokenizer);
    specials_fini(&tokenizer->specials);
    ranks_fini(&tokenizer->ranks);
    free(tokenizer);
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, struct token_list *out,
                             struct error *err)
{
    struct pretokenizer_cursor cursor;
    struct byte_span piece;
    TRY(pretokenizer_begin(&cursor, tokenizer->pretokenizer, text, bytes, err));
    enum status status;
    while ((status = pretokenizer_next(&cursor, &piece, err)) == STATUS_OK && piece.bytes)
        if ((status = bpe_encode(&tokenizer->ranks, piece.data, piece.bytes, out, err)) != STATUS_OK)
            break;
    pretokenizer_end(&cursor);
    return status;
}

enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                             struct byte_buffer *out, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *token = tokenizer_bytes(tokenizer, ids[i], &bytes);
        if (!token)
            return error_set(err, STATUS_ARGUMENT, "token %zu is %d; the vocabulary has the ids 0 to %d", i, ids[i],
                             tokenizer_vocab_size(tokenizer) - 1);
        TRY(byte_buffer_append(out, token, bytes, err));
    }
    return STATUS_OK;
}

int32_t tokenizer_special(const struct tokenizer *tokenizer, const char *name)
{
    return specials_find(&tokenizer->specials, name);
}

int32_t tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return tokenizer->specials.first + tokenizer->specials.count;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id)
{
    return id >= tokenizer->specials.first && id < tokenizer_vocab_size(tokenizer);
}

const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *bytes)
{
    *bytes = 0;
    if (id < 0 || id >= tokenizer_vocab_size(tokenizer))
        return NULL;
    if (tokenizer_is_special(tokenizer, id)) {
        const char *name = tokenizer->specials.names[id - tokenizer->specials.first];
        *bytes = strlen(name);
        return name;
    }
    struct byte_span token = ranks_bytes(&tokenizer->ranks, id);
    *bytes = token.bytes;
    return token.data;
}
