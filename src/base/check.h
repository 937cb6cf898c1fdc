/* CHECK(condition): a bug if false. Prints place and condition, then aborts; on in every build.
 * The only place in the tree that aborts. */
#ifndef DAY0_BASE_CHECK_H
#define DAY0_BASE_CHECK_H

_Noreturn void check_failed(const char *file, int line, const char *condition);

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

#endif
