#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum status error_set(struct error *err, enum status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        err->status = status;
    }
    return status;
}

enum status error_prefix(struct error *err, const char *format, ...)
{
    if (!err)
        return STATUS_FORMAT;
    char old[ERROR_TEXT_BYTES];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    int used = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof err->text)
        snprintf(err->text + used, sizeof err->text - (size_t)used, ": %s", old);
    return err->status;
}
