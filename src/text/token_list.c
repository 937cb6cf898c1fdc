#include "text/token_list.h"

#include <stdlib.h>

enum status token_list_push(struct token_list *list, int32_t id, struct error *err)
{
    if (list->count == list->capacity) {
        size_t wanted = list->capacity ? list->capacity * 2 : 256;
        int32_t *larger = wanted > SIZE_MAX / sizeof *larger ? NULL : realloc(list->ids, wanted * sizeof *larger);
        if (!larger)
            return error_set(err, STATUS_MEMORY, "cannot allocate room for %zu tokens; free memory and try again",
                             wanted);
        list->ids = larger;
        list->capacity = wanted;
    }
    list->ids[list->count++] = id;
    return STATUS_OK;
}

void token_list_fini(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}
