/* Preloaded into QEMU: DELAY_NS at one place of a request's way, named by PLANTED.
 *
 * before     QEMU's worker sleeps, then reads
 * after      it reads, then sleeps, and only then says so
 * kick       the vCPU sleeps, then tells the event loop of the request
 * interrupt  the event loop sleeps, then wakes the vCPU
 * starve     a process of a higher class takes the event loop's CPU as it is about to reap
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
/* Reads follow one another within this while a trial is under way; what else uses the places below is left alone. */
#define TRIAL_NS 100000000
#define FILES 1024

static const char *planted = "";
static int hog = -1, hogs_cpu;
static atomic_ullong last_read;
static atomic_int completed;
/* Descriptors by which a guest's driver notifies a device: made when it takes the device, by a vCPU. */
static atomic_bool notifier[FILES];

static int is(const char *place) { return !strcmp(planted, place); }
static int in_main_thread(void) { return syscall(SYS_gettid) == getpid(); }

static unsigned long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void delay(void) {
    int kept = errno;
    struct timespec t = {DELAY_NS / 1000000000, DELAY_NS % 1000000000};
    nanosleep(&t, NULL);
    errno = kept;
}

/* The hog: each byte costs the CPU that it shares with the event loop. */
static void burn_at_each_byte(int ask) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(hogs_cpu, &one);
    struct sched_param urgent = {.sched_priority = 50};
    if (sched_setaffinity(0, sizeof one, &one) || sched_setscheduler(0, SCHED_FIFO, &urgent)) {
        perror("planted: this user may not take a CPU");
        _exit(1);
    }
    for (char byte; read(ask, &byte, 1) == 1;) {
        if (syscall(SYS_write, ask, &byte, 1) != 1)
            break;
        unsigned long long until = now() + DELAY_NS;
        while (now() < until)
            ;
    }
    _exit(0);
}

static int last_cpu(void) {
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    int last = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        last = CPU_ISSET(i, &all) ? i : last;
    return last;
}

__attribute__((constructor)) static void begin(void) {
    planted = getenv("PLANTED") ? getenv("PLANTED") : "";
    int ends[2];
    if (!is("starve") || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return;
    hogs_cpu = last_cpu();
    if (fork() == 0) {
        /* Nothing of QEMU's may stay open here: its end would not be seen. */
        int ask = dup2(ends[1], 3);
        close_range(4, ~0u, 0);
        burn_at_each_byte(ask);
    }
    close(ends[1]);
    hog = ends[0];
}

/* The event loop shares the hog's CPU, and this worker, which has to tell it, does not. */
static void starve(void) {
    cpu_set_t others, one;
    CPU_ZERO(&others);
    CPU_ZERO(&one);
    for (int i = 0; i < hogs_cpu; i++)
        CPU_SET(i, &others);
    CPU_SET(hogs_cpu, &one);
    sched_setaffinity(0, sizeof others, &others);
    sched_setaffinity(getpid(), sizeof one, &one);
    char byte = 0;
    if (syscall(SYS_write, hog, &byte, 1) != 1 || read(hog, &byte, 1) != 1)
        fprintf(stderr, "planted: the hog is gone\n");
}

static void before(size_t bytes) {
    if (bytes != BLOCK || in_main_thread())
        return;
    last_read = now();
    if (is("before"))
        delay();
}

static void after(size_t bytes) {
    if (bytes != BLOCK || in_main_thread())
        return;
    int kept = errno;
    completed = 1;
    if (is("after"))
        delay();
    if (is("starve"))
        starve();
    errno = kept;
}

ssize_t pread64(int file, void *into, size_t bytes, off64_t at) {
    before(bytes);
    ssize_t done = syscall(SYS_pread64, file, into, bytes, at);
    after(bytes);
    return done;
}

ssize_t preadv64(int file, const struct iovec *into, int count, off64_t at) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += into[i].iov_len;
    before(bytes);
    ssize_t done = syscall(SYS_preadv, file, into, count, at, 0);
    after(bytes);
    return done;
}

static int in_trial(void) { return now() - last_read < TRIAL_NS; }

int eventfd(unsigned count, int flags) {
    int file = syscall(SYS_eventfd2, count, flags);
    if (file >= 0 && file < FILES)
        notifier[file] = !in_main_thread();
    return file;
}

ssize_t write(int file, const void *from, size_t bytes) {
    if (is("kick") && bytes == 8 && file >= 0 && file < FILES && notifier[file] && !in_main_thread() && in_trial())
        delay();
    return syscall(SYS_write, file, from, bytes);
}

int pthread_cond_broadcast(pthread_cond_t *condition) {
    static int (*real)(pthread_cond_t *);
    if (!real)
        real = dlvsym(RTLD_NEXT, "pthread_cond_broadcast", "GLIBC_2.3.2");
    /* The first after a read is the one that brings its interrupt. */
    if (is("interrupt") && in_main_thread() && atomic_exchange(&completed, 0))
        delay();
    return real(condition);
}
