/* Errors of the bad world: a file, a request, a lack of memory.
 *
 * A function that can fail returns `enum status` and takes a `struct error *` last. The sentence is written once, where
 * the fact is known: what was wanted, what was found, what to do. Bugs are not errors, see check.h. */
#ifndef DAY0_BASE_ERROR_H
#define DAY0_BASE_ERROR_H

enum status {
    STATUS_OK = 0,
    STATUS_FORMAT,      /* a file or request does not say what it must */
    STATUS_UNSUPPORTED, /* it is well formed, and asks for what day0 does not do */
    STATUS_NOT_FOUND,   /* a file or tensor is missing */
    STATUS_IO,          /* the operating system refused */
    STATUS_MEMORY,      /* not enough memory */
    STATUS_ARGUMENT,    /* the caller's or the user's argument is out of range */
    STATUS_INTERRUPTED, /* the user asked to stop */
};

enum { ERROR_TEXT_BYTES = 512 };

struct error {
    enum status status;
    char text[ERROR_TEXT_BYTES];
};

#define NEEDS_CHECK __attribute__((warn_unused_result))

/* Fills `err` (may be NULL) with the sentence and gives `status` back, so that `return error_set(...)` fails in one
 * line. */
enum status error_set(struct error *err, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts `prefix: ` before a sentence that a deeper level wrote; gives the status back. */
enum status error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Forwards a failure. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        enum status try_status_ = (call);                                                                              \
        if (try_status_ != STATUS_OK)                                                                                  \
            return try_status_;                                                                                        \
    } while (0)

#endif
