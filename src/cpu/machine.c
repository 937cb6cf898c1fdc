#include "cpu/machine.h"

#include <ctype.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The value after "KEY" and a colon in a file of such lines, like /proc/cpuinfo. */
static bool find_line(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    bool found = false;
    FILE *in = fopen(path, "r");
    if (!in)
        return false;
    while (!found && fgets(line, sizeof line, in)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon)
            continue;
        char *value = colon + 1 + strspn(colon + 1, " \t");
        value[strcspn(value, "\r\n")] = 0;
        snprintf(out, size, "%s", value);
        found = *value != 0;
    }
    fclose(in);
    return found;
}

void machine_name(char out[MACHINE_NAME_BYTES])
{
    if (!find_line("/proc/cpuinfo", "model name", out, MACHINE_NAME_BYTES) &&
        !find_line("/proc/cpuinfo", "CPU part", out, MACHINE_NAME_BYTES))
        snprintf(out, MACHINE_NAME_BYTES, "unknown processor");
    for (char *at = out; *at; at++)
        if (!isprint((unsigned char)*at))
            *at = '?';
}

uint64_t machine_cache_bytes(void)
{
    static const hwloc_obj_type_t levels[] = {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE};
    hwloc_topology_t topology;
    uint64_t bytes = 0;
    if (hwloc_topology_init(&topology) != 0)
        return 0;
    if (hwloc_topology_load(topology) == 0)
        for (size_t level = 0; level < sizeof levels / sizeof *levels && bytes == 0; level++)
            for (int i = 0; i < hwloc_get_nbobjs_by_type(topology, levels[level]); i++)
                bytes += hwloc_get_obj_by_type(topology, levels[level], (unsigned)i)->attr->cache.size;
    hwloc_topology_destroy(topology);
    return bytes;
}
