/* A guest's first program: plants a delay in the guest itself, then becomes /init. PLANTED says which:
 *
 * guest-limit  the block layer lets a group of tasks, in which the workload is, make one request each LIMIT_NS
 * guest-hog    a task of a higher class takes the CPU for LIMIT_NS during each read, or right after one that was
 *              over before it looked
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "text.h"

#define SYS "/planted.sys"
#define GROUPS "/planted.groups"

static char disk[300];

static void rest(long ns) {
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

static void put(const char *path, const char *what) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, what, strlen(what)) < 0)
        perror(path);
    if (file >= 0)
        close(file);
}

/* The folder of the disk with this serial in sysfs. */
static int found(const char *serial) {
    DIR *all = opendir(SYS "/block");
    int here = 0;
    for (struct dirent *one; all && !here && (one = readdir(all));) {
        char path[400], has[64];
        snprintf(disk, sizeof disk, SYS "/block/%s", one->d_name);
        snprintf(path, sizeof path, "%s/serial", disk);
        text(path, has, sizeof has);
        here = !strncmp(has, serial, strlen(serial));
    }
    if (all)
        closedir(all);
    return here;
}

static void limit(void) {
    char path[400], number[32], rule[100];
    snprintf(path, sizeof path, "%s/dev", disk);
    text(path, number, sizeof number);
    number[strcspn(number, "\n")] = 0;
    mkdir(GROUPS, 0755);
    if (mount("none", GROUPS, "cgroup2", 0, NULL))
        perror(GROUPS);
    put(GROUPS "/cgroup.subtree_control", "+io");
    mkdir(GROUPS "/slow", 0755);
    snprintf(rule, sizeof rule, "%s riops=%d", number, (int)(1000000000l / LIMIT_NS));
    put(GROUPS "/slow/io.max", rule);
    put(GROUPS "/slow/cgroup.procs", "1");
}

/* The first number in a file of the disk: reads done in `stat`, under way in `inflight`. */
static long count(const char *file) {
    char path[400], numbers[300];
    snprintf(path, sizeof path, "%s/%s", disk, file);
    text(path, numbers, sizeof numbers);
    return atol(numbers);
}

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}

static void hog(void) {
    struct sched_param urgent = {.sched_priority = 50};
    if (sched_setscheduler(0, SCHED_FIFO, &urgent))
        perror("sched_setscheduler");
    put("/proc/sys/kernel/sched_rt_runtime_us", "-1");
    for (long seen = count("stat");;) {
        rest(200000);
        if (count("inflight") == 0 && count("stat") == seen)
            continue;
        /* A clock may be a device, which takes QEMU's lock: asked seldom. */
        for (long until = now() + LIMIT_NS; now() < until;)
            for (volatile int i = 0; i < 10000; i++)
                ;
        seen = count("stat");
    }
}

int main(void) {
    const char *planted = getenv("PLANTED"), *serial = getenv("PLANTED_DISK");
    if (planted && serial && fork() == 0) {
        mkdir(SYS, 0755);
        mount("none", SYS, "sysfs", 0, NULL);
        while (!found(serial))
            rest(10000000);
        if (!strcmp(planted, "guest-limit"))
            limit();
        else
            hog();
        return 0;
    }
    execl("/init", "/init", NULL);
    return 1;
}
