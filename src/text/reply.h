/* The reply of a model, taken apart while it is generated: reasoning, content and tool calls, out of token
 * ids.
 *
 * Structure  is control ids alone. Text that looks like structure is text; the text of a marker (from
 *            <|open|> or <|close|> to the next control token of the format) never becomes reasoning, content
 *            or a value.
 * Lenient    whatever the ids, the reply comes out as far as it can be read. The response may be missing, the
 *            reasoning unclosed, calls unclosed: the next tag closes what is open. Unknown tags are ignored,
 *            and the text in them belongs to what is open around them; text outside of all tags is content;
 *            text between calls is dropped. What was mended is said in `flaws`.
 * Streamed   texts only grow, by whole characters, and events say what is new: a stream joined is the whole,
 *            and a reply cut anywhere is a prefix of it.
 * Formats    K3; K2, NOT verified (see chat.h); CHAT_FORMAT_NONE, where all is content up to a stop token,
 *            the names of special tokens included. */
#ifndef DAY0_TEXT_REPLY_H
#define DAY0_TEXT_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/byte_buffer.h"
#include "text/chat.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

enum {
    REPLY_TEXT_BYTES_MAX = 1 << 26,           /* of all tokens; over it the reply is cut */
    REPLY_CALLS_MAX = CHAT_REQUEST_CALLS_MAX, /* over it the reply is cut */
    REPLY_CALL_BYTES_MAX = 1 << 24,           /* of one call's arguments; over it the call is REPLY_FLAW_LARGE */
    REPLY_TAG_BYTES_MAX = 1 << 12,            /* of one tag; over it the tag is ignored, REPLY_FLAW_LARGE */
};

enum reply_finish {
    REPLY_UNFINISHED,
    REPLY_STOPPED, /* the model ended its message */
    REPLY_CALLS,   /* it did, and asks for at least one whole call */
    REPLY_CUT,     /* it did not: no more tokens, or a limit above */
};

/* What was wrong with a call or a reply; bits. */
enum reply_flaw {
    REPLY_FLAW_FORM = 1,      /* a tag that does not belong, a missing one, a missing name, dropped text */
    REPLY_FLAW_VALUE = 2,     /* a value is not of its declared type; if it is not JSON, it became a string */
    REPLY_FLAW_ARGUMENTS = 4, /* the arguments are not a JSON object of distinct keys */
    REPLY_FLAW_LARGE = 8,     /* over a limit: the rest was dropped */
    REPLY_FLAW_CUT = 16,      /* the reply was cut inside the call */
};

/* A call with one of these must not be carried out. Its arguments stay as they are; those that day0 writes,
 * of K3, stay unclosed and so are no JSON. */
enum { REPLY_FLAWS_BROKEN = REPLY_FLAW_LARGE | REPLY_FLAW_CUT };

struct reply_call {
    struct byte_buffer name;
    /* JSON text of an object; as the model wrote it where it writes JSON itself (K2, `json` blocks of K3). */
    struct byte_buffer arguments;
    unsigned flaws;
};

enum reply_event_kind {
    REPLY_EVENT_REASONING,      /* text: what is new */
    REPLY_EVENT_CONTENT,        /* text: what is new */
    REPLY_EVENT_CALL_BEGIN,     /* text: the name of the tool */
    REPLY_EVENT_CALL_ARGUMENTS, /* text: what is new of the arguments' JSON text */
    REPLY_EVENT_ARGUMENT,       /* one argument is whole: key, declared type; text: the value as JSON */
    REPLY_EVENT_CALL_END,       /* text: all arguments; flaws of the call */
    REPLY_EVENT_END,            /* finish; flaws of the reply */
};

/* The spans are borrowed until the sink returns. */
struct reply_event {
    enum reply_event_kind kind;
    struct byte_span text;
    struct byte_span key, type;
    size_t call_index; /* from 0 */
    unsigned flaws;
    enum reply_finish finish;
};

/* Takes an event; a failure comes out of the function that was called, and leaves the reply to reply_fini. */
typedef enum status reply_sink(void *context, const struct reply_event *event, struct error *err);

enum { REPLY_CONTROLS = 8 };

struct reply {
    /* What the reply says so far; borrowed until the next call. */
    struct byte_buffer reasoning, content;
    struct reply_call *calls;
    size_t call_count;
    unsigned flaws; /* of the reply and all its calls */
    enum reply_finish finish;

    /* The rest belongs to the parser. */
    const struct tokenizer *tokenizer;
    enum chat_format format;
    reply_sink *sink;
    void *context;
    struct detokenizer words;
    int32_t stops[CHAT_STOP_TOKENS_MAX];
    size_t stop_count;
    int32_t controls[REPLY_CONTROLS]; /* what they are is the format's */
    int place;                        /* enum reply_place */
    int tag_kind;                     /* enum reply_tag_kind */
    struct byte_buffer tag;           /* the text of the tag that is being read */
    bool tag_is_large;
    struct byte_buffer key, type, value; /* of the argument that is being read */
    size_t value_start;                  /* of a string that is being written: where in the arguments it starts */
    size_t argument_count;               /* of the call that is being read */
    size_t call_capacity;
    size_t text_bytes;             /* of all tokens so far */
    struct byte_buffer words_text; /* of one token */
    struct byte_buffer scratch;
};

/* Does     begins a reply; `thinking` as in the request (K3: the prompt has opened `think`, else `response`).
 *          `sink` may be NULL.
 * Owns     *reply until reply_fini; borrows the tokenizer as long. */
void reply_init(struct reply *reply, const struct tokenizer *tokenizer, enum chat_format format, bool thinking,
                reply_sink *sink, void *context);

/* Does     takes the next token; a stop token finishes the reply, and after the end tokens are ignored. Ids
 *          outside the vocabulary have no text.
 * Fails    STATUS_MEMORY; with the sink's failures. Then only reply_fini may follow. */
NEEDS_CHECK enum status reply_push(struct reply *reply, int32_t id, struct error *err);

/* Does     says that no more tokens come. `stopped`: the model ended by itself (a stop token that was not
 *          pushed); otherwise the reply is REPLY_CUT, unless its message was closed already. Half a character
 *          at a cut is left out. Does nothing if the reply is finished.
 * Fails    as reply_push. */
NEEDS_CHECK enum status reply_finish(struct reply *reply, bool stopped, struct error *err);

/* May be called twice and on a zeroed struct. */
void reply_fini(struct reply *reply);

/* Does     appends the reply as the JSON of an assistant message, fit for the next request:
 *              {"role": "assistant", "content": "..." or null, "reasoning_content": "...", "tool_calls":
 *               [{"id": ID, "type": "function", "function": {"name": "...", "arguments": "..."}}]}
 *          ID is `id_prefix` followed by the index of the call among all calls. Calls of
 *          REPLY_FLAWS_BROKEN are left out. Arguments that are JSON but no object, which a request cannot
 *          say, stand in {"json": ...}. Rendered again, a well-formed reply gives the segments it was parsed
 *          from. (The renderer drops reasoning that is blank, and writes JSON in Python's spelling.)
 * Fails    STATUS_MEMORY. */
NEEDS_CHECK enum status chat_reply_message(const struct reply *reply, const char *id_prefix, struct byte_buffer *out,
                                           struct error *err);

#endif
