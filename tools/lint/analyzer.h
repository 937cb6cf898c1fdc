/* What the analyzer, which looks at one source at a time, cannot know: a failure's status is the one that was named. */
#include "base/error.h"

#define error_set(err, status, ...) ((error_set)(err, status, __VA_ARGS__), (status))
