#include "exec/team.h"

#include <errno.h>
#include <hwloc.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/check.h"
#include "cpu/machine.h"

/* Turns of spinning, some tens of microseconds, before a worker sleeps; a waiter hopes a while longer, as it cannot be
 * woken. Then it sleeps, too: on a crowded machine whoever it waits for may need its core, which yielding would not
 * give to a thread that queues for another. */
enum { SPIN_TURNS = 4000, WAIT_TURNS = 4 * SPIN_TURNS, NAP_NANOSECONDS = 50000 };

/* Of a worker, whatever `ulimit -s` says: panels of weights and inputs lie on the stack, 1.5 MB of them. */
enum { STACK_BYTES = 8 << 20 };

struct team {
    _Atomic uint32_t epoch; /* counts runs; the futex that idle workers sleep on */
    _Atomic uint32_t sleepers;
    _Atomic unsigned running; /* workers that have not finished the current run */
    _Atomic bool closing;
    void (*function)(void *, unsigned);
    void *context;
    unsigned n_threads, n_started;
    pthread_t *threads;
    struct worker {
        struct team *team;
        unsigned index;
    } workers[TEAM_THREADS_MAX];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

bool team_pause(unsigned *turns)
{
    if (*turns >= WAIT_TURNS) {
        nanosleep(&(struct timespec){.tv_nsec = NAP_NANOSECONDS}, NULL);
        return true;
    }
    ++*turns;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    return false;
}

/* Waits until the epoch leaves `seen`; gives the new one. */
static uint32_t wait_for_run(struct team *team, uint32_t seen)
{
    uint32_t epoch;
    for (unsigned turns = 0; turns < SPIN_TURNS; turns++) {
        if ((epoch = atomic_load(&team->epoch)) != seen)
            return epoch;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    atomic_fetch_add(&team->sleepers, 1);
    while ((epoch = atomic_load(&team->epoch)) == seen)
        futex_wait(&team->epoch, seen);
    atomic_fetch_sub(&team->sleepers, 1);
    return epoch;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct team *team = worker->team;
    for (uint32_t seen = 0;;) {
        seen = wait_for_run(team, seen);
        if (atomic_load(&team->closing))
            return NULL;
        team->function(team->context, worker->index);
        atomic_fetch_sub(&team->running, 1);
    }
}

static void announce(struct team *team)
{
    atomic_fetch_add(&team->epoch, 1);
    if (atomic_load(&team->sleepers) > 0)
        futex_wake_all(&team->epoch);
}

/* Processors that this process may use. */
static unsigned count_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

static unsigned count_cores(void)
{
    hwloc_topology_t topology;
    unsigned cores = 0;
    if (!machine_has_topology() || hwloc_topology_init(&topology) != 0)
        return count_processors();
    if (hwloc_topology_load(topology) == 0) {
        /* Cores that this process may use: affinity and cpusets are respected. */
        hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
        if (allowed && hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
            int n = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
            for (int i = 0; i < n; i++)
                cores +=
                    hwloc_bitmap_intersects(hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, i)->cpuset, allowed) != 0;
        }
        hwloc_bitmap_free(allowed);
    }
    hwloc_topology_destroy(topology);
    return cores ? cores : count_processors();
}

static int start(pthread_t *thread, struct worker *worker)
{
    pthread_attr_t attributes;
    int failed = pthread_attr_init(&attributes);
    if (failed)
        return failed;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    failed = pthread_create(thread, &attributes, worker_main, worker);
    pthread_attr_destroy(&attributes);
    return failed;
}

enum status team_open(struct team **out, unsigned n_threads, struct error *err)
{
    *out = NULL;
    if (n_threads > TEAM_THREADS_MAX)
        return error_set(err, STATUS_ARGUMENT, "at most %d threads, %u were asked for", TEAM_THREADS_MAX, n_threads);
    if (n_threads == 0) {
        n_threads = count_cores();
        n_threads = n_threads > TEAM_THREADS_MAX ? TEAM_THREADS_MAX : n_threads;
    }
    struct team *team;
    TRY(memory_take(&team, 1, sizeof *team, "the thread team", err));
    enum status status = memory_take(&team->threads, n_threads, sizeof *team->threads, "the thread team", err);
    team->n_threads = n_threads;
    for (unsigned i = 1; status == STATUS_OK && i < n_threads; i++) {
        team->workers[i] = (struct worker){team, i};
        int failed = start(&team->threads[i], &team->workers[i]);
        if (failed)
            status = error_set(err, STATUS_MEMORY, "cannot start thread %u of %u: %s; lower --threads", i + 1,
                               n_threads, strerror(failed));
        else
            team->n_started = i;
    }
    if (status != STATUS_OK) {
        team_close(team);
        return status;
    }
    *out = team;
    return STATUS_OK;
}

void team_close(struct team *team)
{
    if (!team)
        return;
    atomic_store(&team->closing, true);
    announce(team);
    for (unsigned i = 1; i <= team->n_started; i++)
        pthread_join(team->threads[i], NULL);
    free(team->threads);
    free(team);
}

unsigned team_size(const struct team *team)
{
    return team->n_threads;
}

void team_run(struct team *team, void (*function)(void *context, unsigned worker), void *context)
{
    CHECK(atomic_load(&team->running) == 0);
    team->function = function;
    team->context = context;
    atomic_store(&team->running, team->n_threads - 1);
    if (team->n_threads > 1)
        announce(team);
    function(context, 0);
    for (unsigned turns = 0; atomic_load(&team->running) > 0;)
        team_pause(&turns);
}
