/* The commands that a person talks to. They know the engine only through day0.h. */
#ifndef DAY0_APP_COMMANDS_H
#define DAY0_APP_COMMANDS_H

int app_run(int argc, char **argv);
int app_chat(int argc, char **argv);

#endif
