#include "text/chat.h"

#include <string.h>

#include "text/chat_formats.h"

enum { CONTROL_NAME_BYTES_MAX = 64 };

enum chat_format chat_format_of(const struct tokenizer *tokenizer)
{
    static const char *const k3[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"};
    static const char *const k2[] = {"<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"};
    size_t k3_count = 0, k2_count = 0;
    for (size_t i = 0; i < sizeof k3 / sizeof *k3; i++)
        k3_count += tokenizer_special(tokenizer, k3[i]) >= 0;
    for (size_t i = 0; i < sizeof k2 / sizeof *k2; i++)
        k2_count += tokenizer_special(tokenizer, k2[i]) >= 0;
    if (k3_count == sizeof k3 / sizeof *k3)
        return CHAT_FORMAT_K3;
    return k2_count == sizeof k2 / sizeof *k2 ? CHAT_FORMAT_K2 : CHAT_FORMAT_NONE;
}

enum status chat_render(enum chat_format format, const struct chat_request *request, struct chat_segments *segments,
                        struct error *err)
{
    switch (format) {
    case CHAT_FORMAT_K3:
        return chat_k3_render(request, segments, err);
    case CHAT_FORMAT_K2:
        return chat_k2_render(request, segments, err);
    default:
        return error_set(err, STATUS_UNSUPPORTED,
                         "the tokenizer has the control tokens of no chat format known here (<|open|> ... of K3, "
                         "<|im_user|> ... of K2); give the model plain text instead of a chat");
    }
}

static enum status encode_control(const struct tokenizer *tokenizer, struct chat_segment segment,
                                  struct token_list *ids, struct error *err)
{
    char name[CONTROL_NAME_BYTES_MAX] = "";
    if (segment.bytes < sizeof name)
        memcpy(name, segment.text, segment.bytes);
    int32_t id = tokenizer_special(tokenizer, name);
    if (id < 0)
        return error_set(err, STATUS_UNSUPPORTED, "the prompt needs the special token %s, which the tokenizer lacks",
                         name);
    return token_list_push(ids, id, err);
}

enum status chat_encode(const struct tokenizer *tokenizer, const struct chat_segments *segments, struct token_list *ids,
                        struct error *err)
{
    for (size_t i = 0; i < segments->count; i++) {
        struct chat_segment segment = chat_segments_at(segments, i);
        if (segment.is_control)
            TRY(encode_control(tokenizer, segment, ids, err));
        else
            TRY(tokenizer_encode(tokenizer, segment.text, segment.bytes, ids, err));
    }
    return STATUS_OK;
}

size_t chat_format_stop_tokens(const struct tokenizer *tokenizer, enum chat_format format,
                               int32_t ids[CHAT_STOP_TOKENS_MAX])
{
    const char *end_of_message = format == CHAT_FORMAT_K2 ? "<|im_end|>" : "<|end_of_msg|>";
    const char *const names[CHAT_STOP_TOKENS_MAX] = {"[EOS]", end_of_message};
    size_t count = 0;
    for (size_t i = 0; i < CHAT_STOP_TOKENS_MAX; i++) {
        int32_t id = tokenizer_special(tokenizer, names[i]);
        if (id >= 0)
            ids[count++] = id;
    }
    return count;
}

size_t chat_stop_tokens(const struct tokenizer *tokenizer, int32_t ids[CHAT_STOP_TOKENS_MAX])
{
    return chat_format_stop_tokens(tokenizer, chat_format_of(tokenizer), ids);
}
