/* Chat requests: the input is the JSON of a request, rendered in each format. Control ids must be the control
 * segments, no more: nothing in a request makes one. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A tokenizer of single bytes and the control tokens of both formats, made once. */
static const struct tokenizer *byte_tokenizer(void)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char *const names[] = {"<|open|>",
                                        "<|close|>",
                                        "<|sep|>",
                                        "<|end_of_msg|>",
                                        "<|im_end|>",
                                        "<|im_user|>",
                                        "<|im_assistant|>",
                                        "<|im_system|>",
                                        "<|im_middle|>",
                                        "<|tool_call_begin|>",
                                        "<|tool_call_end|>",
                                        "<|tool_call_argument_begin|>",
                                        "<|tool_calls_section_begin|>",
                                        "<|tool_calls_section_end|>"};
    static struct tokenizer *tokenizer;
    struct byte_buffer model = {0}, config = {0};
    struct error err;
    char line[80];
    for (unsigned byte = 0; byte < 256 && !tokenizer; byte++) {
        snprintf(line, sizeof line, "%c%c== %u\n", letters[byte >> 2], letters[(byte & 3) << 4], byte);
        CHECK(byte_buffer_append_text(&model, line, &err) == STATUS_OK);
    }
    for (unsigned i = 0; i < sizeof names / sizeof *names && !tokenizer; i++) {
        snprintf(line, sizeof line, "%s\"%u\": {\"content\": \"%s\"}",
                 i ? ", " : "{\"added_tokens_decoder\": {", 256 + i, names[i]);
        CHECK(byte_buffer_append_text(&config, line, &err) == STATUS_OK);
    }
    if (!tokenizer) {
        CHECK(byte_buffer_append_text(&config, "}}", &err) == STATUS_OK);
        CHECK(tokenizer_open_contents(&tokenizer, (struct byte_span){model.data, model.bytes},
                                      (struct byte_span){config.data, config.bytes}, &err) == STATUS_OK);
    }
    byte_buffer_fini(&model);
    byte_buffer_fini(&config);
    return tokenizer;
}

static void render(const struct chat_request *request, enum chat_format format)
{
    const struct tokenizer *tokenizer = byte_tokenizer();
    struct chat_segments segments = {0};
    struct token_list ids = {0};
    struct error err;
    if (chat_render(format, request, &segments, &err) == STATUS_OK) {
        size_t wanted = 0, found = 0;
        CHECK(chat_encode(tokenizer, &segments, &ids, &err) == STATUS_OK);
        for (size_t i = 0; i < segments.count; i++)
            wanted += chat_segments_at(&segments, i).is_control;
        for (size_t i = 0; i < ids.count; i++)
            found += tokenizer_is_special(tokenizer, ids.ids[i]);
        CHECK(wanted == found);
    }
    chat_segments_fini(&segments);
    token_list_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chat_request request;
    struct error err;
    if (chat_request_init(&request, (const char *)data, size, &err) == STATUS_OK) {
        render(&request, CHAT_FORMAT_K3);
        render(&request, CHAT_FORMAT_K2);
        chat_request_fini(&request);
    } else {
        CHECK(err.text[0]);
    }
    return 0;
}
