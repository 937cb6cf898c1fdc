/* Replies: the first byte of the input chooses the format (`t` K3 inside think, `3` K3, `2` K2, else none),
 * the second byte `!` a stop at the end; then come bytes, where the names of special tokens are those tokens.
 * What is parsed must be what its events say, a prefix of it when cut, and a message that renders. */
#include <stdint.h>
#include <string.h>

#include "../unit/reply_collect.h"
#include "base/check.h"
#include "byte_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUT_TOKENS_MAX = 300 };

static void read_ids(const struct tokenizer *tokenizer, const uint8_t *data, size_t size, struct token_list *ids)
{
    for (size_t at = 0, bytes = 1; at < size; at += bytes) {
        int32_t id = tokenizer_vocab_size(tokenizer) - 1;
        for (; tokenizer_is_special(tokenizer, id); id--) {
            const char *name = tokenizer_bytes(tokenizer, id, &bytes);
            if (bytes <= size - at && memcmp(name, data + at, bytes) == 0)
                break;
        }
        if (!tokenizer_is_special(tokenizer, id)) {
            id = data[at];
            bytes = 1;
        }
        CHECK(token_list_push(ids, id, NULL) == STATUS_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tokenizer *tokenizer = byte_tokenizer();
    struct token_list ids = {0};
    struct chat_segments segments = {0};
    struct reply reply;
    bool thinking = size > 0 && data[0] == 't', stopped = size > 1 && data[1] == '!';
    enum chat_format format = thinking || (size > 0 && data[0] == '3') ? CHAT_FORMAT_K3
                              : size > 0 && data[0] == '2'             ? CHAT_FORMAT_K2
                                                                       : CHAT_FORMAT_NONE;
    if (size > 0)
        read_ids(tokenizer, data + 1 + stopped, size - 1 - stopped, &ids);
    parse_reply(&reply, tokenizer, format, thinking, ids.ids, ids.count, stopped);
    if (ids.count <= CUT_TOKENS_MAX)
        check_cuts(&reply, tokenizer, format, thinking, ids.ids, ids.count);
    if (format != CHAT_FORMAT_NONE)
        render_reply(&reply, format, thinking, &segments);
    chat_segments_fini(&segments);
    token_list_fini(&ids);
    reply_fini(&reply);
    return 0;
}
