/* Chat prompts: a request rendered in the format of a model, segment by segment, and the segments as token
 * ids.
 *
 * Control   token ids of structure come only from the renderer. What the request says is encoded as plain
 *           text, so text that looks like structure stays text.
 * Segments  the renderer makes the same segments as the vendor's encoder, and each is encoded on its own:
 *           merges never cross a border.
 * Formats   K3 is checked against the vendor's encoder. K2 (Kimi Linear) follows descriptions of the template
 *           and is NOT verified: the default system text, the places of blanks and the tool tokens may differ
 *           from the checkpoint's. */
#ifndef DAY0_TEXT_CHAT_H
#define DAY0_TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/chat_request.h"
#include "text/chat_segments.h"
#include "text/token_list.h"
#include "text/tokenizer.h"

enum chat_format {
    CHAT_FORMAT_NONE, /* the tokenizer has the control tokens of no known format */
    CHAT_FORMAT_K2,
    CHAT_FORMAT_K3,
};

/* Tells the format from the special tokens there are. */
enum chat_format chat_format_of(const struct tokenizer *tokenizer);

/* Does     appends the segments of the prompt, up to where the model's reply begins.
 * Fails    STATUS_UNSUPPORTED for CHAT_FORMAT_NONE and what the format cannot say; STATUS_MEMORY. */
NEEDS_CHECK enum status chat_render(enum chat_format format, const struct chat_request *request,
                                    struct chat_segments *segments, struct error *err);

/* Does     appends the ids of the segments.
 * Fails    STATUS_UNSUPPORTED if the tokenizer lacks a control token; else as tokenizer_encode. */
NEEDS_CHECK enum status chat_encode(const struct tokenizer *tokenizer, const struct chat_segments *segments,
                                    struct token_list *ids, struct error *err);

enum { CHAT_STOP_TOKENS_MAX = 2 };

/* The tokens that end a reply: writes those the tokenizer has, gives how many. */
size_t chat_stop_tokens(const struct tokenizer *tokenizer, int32_t ids[CHAT_STOP_TOKENS_MAX]);

/* The same for a format that need not be the one the tokenizer suggests. */
size_t chat_format_stop_tokens(const struct tokenizer *tokenizer, enum chat_format format,
                               int32_t ids[CHAT_STOP_TOKENS_MAX]);

#endif
