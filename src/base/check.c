#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: bug: %s does not hold\n", file, line, condition);
    abort();
}
