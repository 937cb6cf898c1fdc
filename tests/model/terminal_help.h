/* A command on a pseudo terminal: typed at and read as a person does. */
#ifndef DAY0_TESTS_TERMINAL_HELP_H
#define DAY0_TESTS_TERMINAL_HELP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CTRL_C "\003"
#define CTRL_D "\004"

struct terminal {
    pid_t child;
    int descriptor;
    char *text; /* everything that came, terminated; carriage returns left out */
    size_t bytes;
    size_t seen; /* where the next wait begins */
};

/* The day0 command: $DAY0_BINARY, else the one of the test's own build. */
const char *terminal_day0(void);

/* Starts `words` (NULL at the end; words[0] is looked up in PATH) on a terminal of 80 columns in the C
 * locale. */
struct terminal terminal_open(const char *const *words);

/* Types, as fast as the terminal takes it. */
void terminal_type(struct terminal *t, const char *text);

/* Waits until `word` comes after what was waited for before; fails the test with all that came if it does
 * not. */
void terminal_expect(struct terminal *t, const char *word);

/* The same for a line editor's prompt; and until the editor listens. What is typed before, the terminal takes
 * for a whole line's input and shows twice; a Ctrl-D is lost. */
void terminal_expect_prompt(struct terminal *t, const char *prompt);

/* How often `word` came so far. */
size_t terminal_count(const struct terminal *t, const char *word);

/* Waits for so many more bytes, the end, or silence: nothing for two seconds. false at the end. */
bool terminal_await_bytes(struct terminal *t, size_t bytes);

/* The text after what was waited for. */
const char *terminal_rest(const struct terminal *t);

/* Waits for the end. Gives the exit status, or 128 and the signal. Checks that all text is whole UTF-8
 * characters. */
int terminal_close(struct terminal *t);

#endif
