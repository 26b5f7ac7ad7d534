/* Preloaded into QEMU: DELAY_NS at one place of a request's way, named by PLANTED.
 *
 * before     QEMU's worker sleeps, then reads
 * after      it reads, then sleeps, and only then says so
 * kick       the vCPU sleeps, then tells the event loop of the request
 * interrupt  the event loop sleeps, then wakes the vCPU
 * starve     a process of a higher class takes the event loop's CPU as it is about to reap: see hog.c
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
#include <sys/un.h>
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
    if (!is("starve"))
        return;
    hogs_cpu = last_cpu();
    struct sockaddr_un here = {.sun_family = AF_UNIX}, there = {.sun_family = AF_UNIX};
    strncpy(there.sun_path, getenv("HOG"), sizeof there.sun_path - 1);
    hog = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* An address without a path has the kernel choose one: the hog answers there. */
    if (bind(hog, (struct sockaddr *)&here, sizeof here.sun_family) ||
        connect(hog, (struct sockaddr *)&there, sizeof there)) {
        perror("planted: the hog");
        _exit(1);
    }
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
    int cpu = hogs_cpu;
    if (send(hog, &cpu, sizeof cpu, 0) != sizeof cpu || recv(hog, &cpu, sizeof cpu, 0) != sizeof cpu)
        perror("planted: the hog");
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
