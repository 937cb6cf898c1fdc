/* What this machine is: the processor's name and its caches. */
#ifndef DAY0_CPU_MACHINE_H
#define DAY0_CPU_MACHINE_H

#include <stdint.h>

enum { MACHINE_NAME_BYTES = 128 };

/* "Intel(R) Xeon(R) Processor"; "unknown processor" if the system does not say. Printable, no line breaks. */
void machine_name(char out[MACHINE_NAME_BYTES]);

/* Bytes of all last-level caches together; 0 if unknown. */
uint64_t machine_cache_bytes(void);

#endif
