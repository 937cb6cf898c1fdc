/* Tokenizer files: the input is tiktoken.model, a zero byte, tokenizer_config.json. If they are accepted, the
 * input itself goes through the tokenizer and must come back. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *zero = size ? memchr(text, 0, size) : NULL;
    size_t model_bytes = zero ? (size_t)(zero - text) : size, config_bytes = zero ? size - model_bytes - 1 : 0;
    struct tokenizer *tokenizer;
    struct token_list ids = {0};
    struct byte_buffer back = {0}, stream = {0};
    struct detokenizer detokenizer;
    struct error err;
    if (tokenizer_open_contents(&tokenizer, (struct byte_span){text, model_bytes},
                                (struct byte_span){text + size - config_bytes, config_bytes}, &err) != STATUS_OK) {
        CHECK(tokenizer == NULL && err.text[0]);
        return 0;
    }
    CHECK(tokenizer_encode(tokenizer, text, size, &ids, &err) == STATUS_OK);
    CHECK(tokenizer_decode(tokenizer, ids.ids, ids.count, &back, &err) == STATUS_OK);
    CHECK(back.bytes == size && memcmp(back.data, text, size) == 0);
    detokenizer_init(&detokenizer, tokenizer);
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++)
        CHECK(detokenizer_push(&detokenizer, id, &stream, &err) == STATUS_OK);
    CHECK(detokenizer_flush(&detokenizer, &stream, &err) == STATUS_OK);
    token_list_fini(&ids);
    byte_buffer_fini(&back);
    byte_buffer_fini(&stream);
    tokenizer_close(tokenizer);
    return 0;
}
