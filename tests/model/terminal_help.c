#include "terminal_help.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "model_help.h"
#include "text/utf8.h"

enum { TEXT_MAX = 1 << 22 };

static const double patience_seconds = 100, silence_seconds = 2;

const char *terminal_day0(void)
{
    static char path[PATH_MAX];
    const char *given = getenv("DAY0_BINARY");
    if (given)
        return given;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 8);
    path[length > 0 ? length : 0] = 0;
    for (int i = 0; i < 3; i++) /* build/x/tests/model/y_test: the command is build/x/day0 */
        *strrchr(path, '/') = 0;
    return strcat(path, "/day0");
}

struct terminal terminal_open(const char *const *words)
{
    struct terminal t = {.text = calloc(TEXT_MAX, 1)};
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    assert_non_null(t.text);
    t.child = forkpty(&t.descriptor, NULL, NULL, &size);
    if (t.child < 0) { /* a minimal system may have no /dev/pts */
        print_message("no pseudo terminal can be had: %s\n", strerror(errno));
        free(t.text);
        skip();
    }
    if (t.child == 0) {
        setenv("TERM", "xterm", 1);
        setenv("LC_ALL", "C", 1);
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    return t;
}

/* cmocka's own messages are cut after 1024 bytes. */
static void fail_with(struct terminal *t, const char *what, const char *word)
{
    fprintf(stderr, "%s\n---- the terminal %s '%s' after byte %zu of %zu\n", t->text, what, word, t->seen, t->bytes);
    kill(t->child, SIGKILL);
    fail_msg("the terminal %s '%s'", what, word);
}

/* Reads what is there within `seconds`. false: nothing comes any more. */
static bool pump(struct terminal *t, double seconds)
{
    char part[4096];
    struct pollfd input = {t->descriptor, POLLIN, 0};
    if (poll(&input, 1, (int)(seconds * 1000)) <= 0)
        return true;
    ssize_t bytes = read(t->descriptor, part, sizeof part);
    if (bytes < 0 && errno == EINTR)
        return true;
    if (bytes <= 0)
        return false;
    for (ssize_t i = 0; i < bytes; i++)
        if (part[i] != '\r') {
            assert_true(t->bytes + 1 < TEXT_MAX);
            t->text[t->bytes++] = part[i];
        }
    return true;
}

void terminal_type(struct terminal *t, const char *text)
{
    size_t bytes = strlen(text);
    assert_int_equal(write(t->descriptor, text, bytes), (ssize_t)bytes);
}

void terminal_expect(struct terminal *t, const char *word)
{
    double end = clock_seconds() + patience_seconds;
    for (bool open = true;; open = open && pump(t, 0.05)) {
        const char *at = strstr(t->text + t->seen, word);
        if (at) {
            t->seen = (size_t)(at - t->text) + strlen(word);
            return;
        }
        if (!open || clock_seconds() > end)
            fail_with(t, "does not say", word);
    }
}

void terminal_expect_prompt(struct terminal *t, const char *prompt)
{
    struct termios mode;
    double end = clock_seconds() + patience_seconds;
    terminal_expect(t, prompt);
    while (tcgetattr(t->descriptor, &mode) == 0 && (mode.c_lflag & ICANON)) {
        if (!pump(t, 0.002) || clock_seconds() > end)
            fail_with(t, "does not listen after", prompt);
    }
}

size_t terminal_count(const struct terminal *t, const char *word)
{
    size_t n = 0;
    for (const char *at = t->text; (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

bool terminal_await_bytes(struct terminal *t, size_t bytes)
{
    size_t before = t->bytes;
    for (double last = clock_seconds(); t->bytes < t->seen + bytes && clock_seconds() - last < silence_seconds;) {
        if (!pump(t, 0.05))
            return false;
        last = t->bytes > before ? clock_seconds() : last;
        before = t->bytes;
    }
    return true;
}

const char *terminal_rest(const struct terminal *t)
{
    return t->text + t->seen;
}

int terminal_close(struct terminal *t)
{
    int status;
    double end = clock_seconds() + patience_seconds;
    while (pump(t, 0.05))
        if (clock_seconds() > end)
            fail_with(t, "does not end", "");
    assert_int_equal(waitpid(t->child, &status, 0), t->child);
    close(t->descriptor);
    if (!utf8_is_valid(t->text, t->bytes))
        fail_with(t, "wrote parts of characters", "");
    free(t->text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
