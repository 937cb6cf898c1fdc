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

static bool read_number(const char *path, uint64_t *out)
{
    unsigned long long number;
    FILE *in = fopen(path, "r");
    bool found = in && fscanf(in, "%llu", &number) == 1;
    if (found)
        *out = number;
    if (in)
        fclose(in);
    return found;
}

/* What the control group leaves, version 2, of this process's group as it sees itself; UINT64_MAX without a limit. */
static uint64_t group_bytes_left(void)
{
    char group[256] = "", path[400];
    uint64_t limit, used;
    FILE *in = fopen("/proc/self/cgroup", "r");
    if (in) {
        if (fscanf(in, "0::%255s", group) != 1)
            group[0] = 0;
        fclose(in);
    }
    const char *const places[] = {group, ""};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", places[i]);
        if (!read_number(path, &limit))
            continue;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", places[i]);
        return read_number(path, &used) && used < limit ? limit - used : limit;
    }
    return UINT64_MAX;
}

uint64_t machine_memory_bytes(void)
{
    char text[64];
    unsigned long long kilobytes;
    if (!find_line("/proc/meminfo", "MemAvailable", text, sizeof text) || sscanf(text, "%llu", &kilobytes) != 1)
        return 0;
    uint64_t available = kilobytes * 1024, left = group_bytes_left();
    return available < left ? available : left;
}
