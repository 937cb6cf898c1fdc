#include "cpu/machine.h"

#include <ctype.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"

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

bool machine_has_topology(void)
{
    return access("/sys/devices/system/cpu/cpu0/topology", R_OK) == 0;
}

uint64_t machine_cache_bytes(void)
{
    static const hwloc_obj_type_t levels[] = {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE};
    hwloc_topology_t topology;
    uint64_t bytes = 0;
    if (!machine_has_topology() || hwloc_topology_init(&topology) != 0)
        return 0;
    if (hwloc_topology_load(topology) == 0)
        for (size_t level = 0; level < sizeof levels / sizeof *levels && bytes == 0; level++)
            for (int i = 0; i < hwloc_get_nbobjs_by_type(topology, levels[level]); i++)
                bytes += hwloc_get_obj_by_type(topology, levels[level], (unsigned)i)->attr->cache.size;
    hwloc_topology_destroy(topology);
    return bytes;
}

enum { LIMIT_FILE_BYTES_MAX = 1 << 16 };

/* A file that holds one number; UINT64_MAX where there is none or it says "max". */
static uint64_t number_in(const char *path)
{
    char *text;
    size_t bytes;
    if (file_read(path, LIMIT_FILE_BYTES_MAX, &text, &bytes, NULL) != STATUS_OK)
        return UINT64_MAX;
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    uint64_t found = end == text ? UINT64_MAX : number;
    free(text);
    return found;
}

/* A line `key: N kB` of a file under /proc. */
static uint64_t kilobytes_of(const char *path, const char *key)
{
    char *text;
    size_t bytes;
    uint64_t found = UINT64_MAX;
    if (file_read(path, LIMIT_FILE_BYTES_MAX, &text, &bytes, NULL) != STATUS_OK)
        return found;
    const char *at = strstr(text, key);
    if (at)
        found = strtoull(at + strlen(key), NULL, 10) * 1024;
    free(text);
    return found;
}

static void tighten(uint64_t *bytes, char why[MACHINE_LIMIT_BYTES], uint64_t limit, const char *name)
{
    if (limit >= *bytes)
        return;
    *bytes = limit;
    snprintf(why, MACHINE_LIMIT_BYTES, "%s", name);
}

/* What one cgroup folder leaves: its limit less what is used and cannot be dropped. */
static void tighten_cgroup(uint64_t *bytes, char why[MACHINE_LIMIT_BYTES], const char *folder, const char *limit_name,
                           const char *used_name)
{
    char limit_path[PATH_BYTES_MAX + 64], used_path[PATH_BYTES_MAX + 64];
    snprintf(limit_path, sizeof limit_path, "%s/%s", folder, limit_name);
    snprintf(used_path, sizeof used_path, "%s/%s", folder, used_name);
    uint64_t limit = number_in(limit_path), used = number_in(used_path);
    if (limit == UINT64_MAX)
        return;
    tighten(bytes, why, used < limit ? limit - used : 0, "the cgroup's memory limit");
}

/* This process's cgroups and all above them: any may hold the limit. */
static void tighten_cgroups(uint64_t *bytes, char why[MACHINE_LIMIT_BYTES])
{
    char *text;
    size_t size;
    if (file_read("/proc/self/cgroup", LIMIT_FILE_BYTES_MAX, &text, &size, NULL) != STATUS_OK)
        return;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        bool v2 = controllers[1] == 0;
        if (!v2 && !strstr(controllers, "memory"))
            continue;
        for (;;) {
            char folder[PATH_BYTES_MAX];
            snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", v2 ? "" : "/memory",
                     strcmp(path, "/") == 0 ? "" : path);
            if (v2)
                tighten_cgroup(bytes, why, folder, "memory.max", "memory.current");
            else
                tighten_cgroup(bytes, why, folder, "memory.limit_in_bytes", "memory.usage_in_bytes");
            char *last = strrchr(path, '/');
            if (!last || path[1] == 0)
                break;
            last[last == path] = 0; /* the parent; "/" stays */
        }
    }
    free(text);
}

uint64_t machine_memory_bytes(char *why)
{
    char unused[MACHINE_LIMIT_BYTES];
    why = why ? why : unused;
    uint64_t bytes = kilobytes_of("/proc/meminfo", "MemAvailable:");
    snprintf(why, MACHINE_LIMIT_BYTES, "the machine's available memory");
    tighten_cgroups(&bytes, why);
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        uint64_t used = kilobytes_of("/proc/self/status", "VmSize:");
        tighten(&bytes, why, used < limit.rlim_cur ? limit.rlim_cur - used : 0, "the address space limit (ulimit -v)");
    }
    return bytes;
}
