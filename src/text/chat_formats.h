/* The renderers behind chat_render, one a format; contract there. */
#ifndef DAY0_TEXT_CHAT_FORMATS_H
#define DAY0_TEXT_CHAT_FORMATS_H

#include "base/error.h"
#include "text/chat_request.h"
#include "text/chat_segments.h"

/* The K3 format: tags of control tokens with attributes. */
NEEDS_CHECK enum status chat_k3_render(const struct chat_request *request, struct chat_segments *segments,
                                       struct error *err);

/* The K2 format of Kimi Linear; not verified, see chat.h. */
NEEDS_CHECK enum status chat_k2_render(const struct chat_request *request, struct chat_segments *segments,
                                       struct error *err);

#endif
