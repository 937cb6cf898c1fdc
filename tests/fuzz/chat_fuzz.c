/* Chat requests: the input is the JSON of a request, rendered in each format. Control ids must be the control
 * segments, no more: nothing in a request makes one. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "byte_tokenizer.h"
#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
