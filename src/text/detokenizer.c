#include "text/detokenizer.h"

#include <string.h>

#include "base/check.h"

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer)
{
    *detokenizer = (struct detokenizer){.tokenizer = tokenizer};
}

/* Takes one byte more. The held bytes are always the incomplete front of a character, so a byte either
 * continues it, or makes the front invalid and starts anew. */
static enum status take_byte(struct detokenizer *detokenizer, char byte, struct byte_buffer *out, struct error *err)
{
    CHECK(detokenizer->held_bytes < UTF8_BYTES_MAX);
    detokenizer->held[detokenizer->held_bytes++] = byte;
    while (detokenizer->held_bytes) {
        struct utf8_step step = utf8_step(detokenizer->held, detokenizer->held_bytes);
        if (step.kind == UTF8_INCOMPLETE)
            break;
        char front[UTF8_BYTES_MAX];
        memcpy(front, detokenizer->held, sizeof front);
        detokenizer->held_bytes -= step.bytes;
        memmove(detokenizer->held, front + step.bytes, detokenizer->held_bytes);
        if (step.kind == UTF8_VALID)
            TRY(byte_buffer_append(out, front, step.bytes, err));
        else
            TRY(byte_buffer_append_text(out, UTF8_REPLACEMENT, err));
    }
    return STATUS_OK;
}

enum status detokenizer_push(struct detokenizer *detokenizer, int32_t id, struct byte_buffer *out, struct error *err)
{
    size_t bytes;
    const char *token = tokenizer_bytes(detokenizer->tokenizer, id, &bytes);
    if (!token)
        return error_set(err, STATUS_ARGUMENT, "token id %d; the vocabulary has the ids 0 to %d", id,
                         tokenizer_vocab_size(detokenizer->tokenizer) - 1);
    for (size_t i = 0; i < bytes; i++)
        TRY(take_byte(detokenizer, token[i], out, err));
    return STATUS_OK;
}

enum status detokenizer_flush(struct detokenizer *detokenizer, struct byte_buffer *out, struct error *err)
{
    if (detokenizer->held_bytes == 0)
        return STATUS_OK;
    detokenizer->held_bytes = 0;
    return byte_buffer_append_text(out, UTF8_REPLACEMENT, err);
}
