/* What the tests of replies share: the markers of the formats, texts to ids, a reply as one line. */
#ifndef DAY0_TESTS_UNIT_REPLY_HELP_H
#define DAY0_TESTS_UNIT_REPLY_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "../fuzz/byte_tokenizer.h"
#include "base/rng.h"
#include "reply_collect.h"
#include "text/chat.h"

#define O "<|open|>"
#define C "<|close|>"
#define S "<|sep|>"
#define E "<|end_of_msg|>"
#define OPEN(tag) O tag S
#define CLOSE(tag) C tag S
#define THOUGHT(text) text CLOSE("think")
#define RESPONSE(text) OPEN("response") text CLOSE("response")
#define TOOLS(calls) OPEN("tools") calls CLOSE("tools")
#define CALL(name, arguments) OPEN("call tool=\"" name "\" index=\"1\"") arguments CLOSE("call")
#define ARGUMENT(key, type, value) OPEN("argument key=\"" key "\" type=\"" type "\"") value CLOSE("argument")
#define END CLOSE("message") E

#define BEGIN "<|tool_calls_section_begin|>"
#define FINISH "<|tool_calls_section_end|>"
#define NAME "<|tool_call_begin|>"
#define JSON "<|tool_call_argument_begin|>"
#define DONE "<|tool_call_end|>"
#define IM_END "<|im_end|>"

static struct tokenizer *tokenizer;
static struct error err;

static inline void must(enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
}

static inline int open_tokenizer(void **state)
{
    (void)state;
    must(tokenizer_open(&tokenizer, "models/jargon-k31", &err));
    return 0;
}

static inline int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

/* ---- texts to ids ---- */

enum split { SPLIT_NOT, SPLIT_BYTES, SPLIT_RANDOM, SPLITS };

/* The special token whose name is in front of `text`, or -1. */
static inline int32_t special_at(const struct tokenizer *t, const char *text, size_t *bytes)
{
    for (int32_t id = tokenizer_vocab_size(t) - 1; tokenizer_is_special(t, id); id--) {
        const char *name = tokenizer_bytes(t, id, bytes);
        if (strncmp(text, name, *bytes) == 0)
            return id;
    }
    return -1;
}

static inline void add_text(const struct tokenizer *t, const char *text, size_t bytes, enum split split,
                            struct rng *rng, struct token_list *ids)
{
    for (size_t at = 0; at < bytes;) {
        size_t part = split == SPLIT_NOT ? bytes : split == SPLIT_BYTES ? 1 : 1 + rng_below(rng, 6);
        part = part < bytes - at ? part : bytes - at;
        must(tokenizer_encode(t, text + at, part, ids, &err));
        at += part;
    }
}

/* Names of special tokens become those tokens; a byte 1 before a name keeps it text. */
static inline void to_ids(const struct tokenizer *t, const char *text, enum split split, struct rng *rng,
                          struct token_list *ids)
{
    char plain[1024];
    size_t used = 0, bytes;
    ids->count = 0;
    for (;;) {
        int32_t id = *text ? special_at(t, text, &bytes) : -1;
        if (id >= 0 || *text == 0) {
            add_text(t, plain, used, split, rng, ids);
            used = 0;
        }
        if (id >= 0) {
            must(token_list_push(ids, id, &err));
            text += bytes;
        } else if (*text == 0) {
            break;
        } else {
            text += *text == 1;
            assert_true(used < sizeof plain);
            plain[used++] = *text++;
        }
    }
}

/* A reply as one line: finish and flaws, reasoning, content, calls. */
static inline char *told(const struct reply *reply)
{
    static const char *const finishes[] = {"unfinished", "stopped", "calls", "cut"};
    static char text[1 << 16];
    int used = snprintf(text, sizeof text, "%s %u [%.*s] [%.*s]", finishes[reply->finish], reply->flaws,
                        (int)reply->reasoning.bytes, reply->reasoning.data ? reply->reasoning.data : "",
                        (int)reply->content.bytes, reply->content.data ? reply->content.data : "");
    for (size_t i = 0; i < reply->call_count; i++) {
        const struct reply_call *call = &reply->calls[i];
        used += snprintf(text + used, sizeof text - (size_t)used, " %.*s %.*s %u", (int)call->name.bytes,
                         call->name.data ? call->name.data : "", (int)call->arguments.bytes,
                         call->arguments.data ? call->arguments.data : "", call->flaws);
    }
    return text;
}

#endif
