/* One turn of talk: a prompt goes in, the reply streams to standard output, taken apart by the reply parser. */
#ifndef DAY0_APP_TURN_H
#define DAY0_APP_TURN_H

#include "app/flags.h"

struct turn {
    size_t n_prompt, n_reused;
    uint32_t n_answer;
    double prompt_seconds, answer_seconds;
    day0_finish finish;
    char reuse[256];
    char *message; /* the reply as a JSON message, malloc'd; NULL in a raw turn */
};

/* Runs a turn in the session. `raw`: the reply is plain text, whatever tokens it has. Ctrl-C ends the answer
 * (DAY0_FINISH_CANCELLED). `turn->message` belongs to the caller. */
DAY0_CHECKED day0_status turn_run(day0_session *session, day0_engine *engine, const day0_tokens *prompt,
                                  const struct app_flags *flags, const day0_sampling *sampling, bool raw,
                                  struct turn *turn, day0_error *error);

/* One line of statistics on standard error. */
void turn_print_stats(const struct turn *turn, const day0_sampling *sampling);

#endif
