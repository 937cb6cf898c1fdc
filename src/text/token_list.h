/* A growing list of token ids.
 *
 * Owns     its memory until token_list_fini, which may be called twice and on a zeroed struct; a zeroed
 *          struct is empty.
 * Fails    STATUS_MEMORY; the ids pushed before stay. */
#ifndef DAY0_TEXT_TOKEN_LIST_H
#define DAY0_TEXT_TOKEN_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct token_list {
    int32_t *ids;
    size_t count;
    size_t capacity;
};

NEEDS_CHECK enum status token_list_push(struct token_list *list, int32_t id, struct error *err);
void token_list_fini(struct token_list *list);

#endif
