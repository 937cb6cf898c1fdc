#ifndef DAY0_TESTS_FUZZ_BYTE_TOKENIZER_H
#define DAY0_TESTS_FUZZ_BYTE_TOKENIZER_H

#include <stdio.h>

#include "base/check.h"
#include "text/tokenizer.h"

/* A tokenizer of single bytes and the control tokens of both formats, made once. */
static inline const struct tokenizer *byte_tokenizer(void)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char *const names[] = {"[EOS]",
                                        "<|open|>",
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
        snprintf(line, sizeof line, "%s\"%u\": {\"content\": \"%s\"}", i ? ", " : "{\"added_tokens_decoder\": {",
                 256 + i, names[i]);
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

#endif
