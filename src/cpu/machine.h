/* What this machine is: the processor's name, its last-level cache, the memory that a process may still take.
 */
#ifndef DAY0_CPU_MACHINE_H
#define DAY0_CPU_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MACHINE_NAME_BYTES = 128, MACHINE_LIMIT_BYTES = 64 };

/* "Intel(R) Xeon(R) Processor"; "unknown processor" if the system does not say. Printable, no line breaks. */
void machine_name(char out[MACHINE_NAME_BYTES]);

/* Whether the system says how its cores and caches lie: not where /sys is missing, as in a bare chroot. hwloc must
 * not be asked then, it would complain on standard error. */
bool machine_has_topology(void);

/* Bytes of all last-level caches together; 0 if unknown. */
uint64_t machine_cache_bytes(void);

/* Bytes that this process can take: what the machine has available, or what its control groups (version 1 or
 * 2, with all above them) or the address space limit leave. `why` [MACHINE_LIMIT_BYTES], or NULL, gets the
 * name of the tightest. UINT64_MAX if nothing is known. */
uint64_t machine_memory_bytes(char *why);

#endif
