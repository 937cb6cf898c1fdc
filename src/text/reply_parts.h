/* What the formats of reply.h share: where the parser stands, and the steps it can take. A format reads
 * control ids and calls these; texts find their way by the place.
 *
 * Every step may end the reply or the call it works on, at a limit; so ask the place again after a step. */
#ifndef DAY0_TEXT_REPLY_PARTS_H
#define DAY0_TEXT_REPLY_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "text/reply.h"

/* Where text goes. */
enum reply_place {
    REPLY_IN_THINK,   /* to the reasoning */
    REPLY_IN_CONTENT, /* to the content */
    REPLY_IN_TOOLS,   /* nowhere: between calls */
    REPLY_IN_CALL,    /* nowhere: between the arguments of a call */
    REPLY_IN_STRING,  /* to the arguments, escaped */
    REPLY_IN_VALUE,   /* to the value, to be judged when it is whole */
    REPLY_IN_RAW,     /* to the arguments as it is */
    REPLY_AFTER_RAW,  /* nowhere: a call that has had its raw arguments */
    REPLY_IN_NOTHING, /* nowhere: the message is closed */
};

/* A tag that is being read takes the text, whatever the place. */
enum reply_tag_kind { REPLY_NO_TAG, REPLY_TAG_OPEN, REPLY_TAG_CLOSE };

static inline bool reply_is_in_call(const struct reply *reply)
{
    return reply->place >= REPLY_IN_CALL && reply->place <= REPLY_AFTER_RAW;
}

static inline bool reply_is_in_argument(const struct reply *reply)
{
    return reply->place == REPLY_IN_STRING || reply->place == REPLY_IN_VALUE;
}

/* ---- reply.c ---- */

/* Says something to the sink. */
NEEDS_CHECK enum status reply_emit(struct reply *reply, struct reply_event event, struct error *err);

/* Marks the reply, and the call that is open. */
void reply_mark(struct reply *reply, unsigned flaws);

/* Ends the text before a control token: half a character becomes U+FFFD. */
NEEDS_CHECK enum status reply_end_text(struct reply *reply, struct error *err);

/* Begins to read a tag; one that is being read is given up. */
void reply_begin_tag(struct reply *reply, enum reply_tag_kind kind);

/* Ends the reply as it stands: no call is closed any more. */
NEEDS_CHECK enum status reply_cut(struct reply *reply, struct error *err);

/* ---- reply_calls.c ---- */

/* Begins a call; none is open. */
NEEDS_CHECK enum status reply_begin_call(struct reply *reply, struct byte_span name, struct error *err);

/* Closes the call if one is open, and its argument; `flaws` go to the call. The place is then between calls.
 */
NEEDS_CHECK enum status reply_end_call(struct reply *reply, unsigned flaws, struct error *err);

/* Begins an argument, between arguments of a call; its key and type are in the reply. */
NEEDS_CHECK enum status reply_begin_argument(struct reply *reply, struct error *err);
NEEDS_CHECK enum status reply_end_argument(struct reply *reply, struct error *err);

/* Text of the argument or of the raw arguments. */
NEEDS_CHECK enum status reply_call_text(struct reply *reply, struct byte_span text, struct error *err);

/* ---- the formats ---- */

void reply_k3_init(struct reply *reply, bool thinking);
NEEDS_CHECK enum status reply_k3_control(struct reply *reply, int32_t id, struct error *err);

void reply_k2_init(struct reply *reply);
NEEDS_CHECK enum status reply_k2_control(struct reply *reply, int32_t id, struct error *err);

#endif
