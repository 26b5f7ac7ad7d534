/* A virtio device driven from user space, one request at a time, polled: what no kernel's driver would send can be. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "text.h"

#define HUGE (2 << 20)
#define QUEUE 8
/* Where in the memory that both see things are. */
#define RINGS 0x0
#define RINGS_APART 0x4000
#define REQUEST 0x100000
#define ANSWER 0x140000
#define MESSAGE 0x20000

struct device {
    volatile uint8_t *common, *notify;
    uint8_t *memory;
    uint64_t physical;
    uint32_t multiplier;
    uint16_t queue, sent;
};

static int put(const char *path, const char *what) {
    int file = open(path, O_WRONLY | O_CLOEXEC), done = file < 0 ? -1 : (int)write(file, what, strlen(what));
    if (file >= 0)
        close(file);
    return done;
}

static int broken(const char *what) {
    printf("RAW broken %s: %s\n", what, strerror(errno));
    return -1;
}

/* The PCI device of this kind of virtio device; its drivers are taken off it. */
static int taken(int kind, char *folder, int room) {
    char path[700], has[64];
    DIR *all = opendir("/sys/bus/pci/devices");
    for (struct dirent *one; all && (one = readdir(all));) {
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", one->d_name);
        if (text(path, has, sizeof has) < 0 || strtol(has, NULL, 16) != 0x1af4)
            continue;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/device", one->d_name);
        text(path, has, sizeof has);
        long id = strtol(has, NULL, 16);
        if (id != 0x1040 + kind && !(kind == 9 && id == 0x1009))
            continue;
        snprintf(folder, room, "/sys/bus/pci/devices/%s", one->d_name);
        put("/sys/bus/pci/drivers/virtio-pci/unbind", one->d_name);
        snprintf(path, sizeof path, "%s/enable", folder);
        put(path, "1");
        closedir(all);
        return 0;
    }
    if (all)
        closedir(all);
    return broken("no such device");
}

static volatile uint8_t *region(const char *folder, int bar, uint32_t offset) {
    char path[700];
    snprintf(path, sizeof path, "%s/resource%d", folder, bar);
    int file = open(path, O_RDWR | O_SYNC);
    uint8_t *at = mmap(NULL, 0x4000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || at == MAP_FAILED)
        return NULL;
    return at + offset;
}

static int shared_memory(struct device *d) {
    put("/proc/sys/vm/nr_hugepages", "1");
    d->memory = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (d->memory == MAP_FAILED)
        return broken("a huge page");
    memset(d->memory, 0, HUGE);
    uint64_t entry = 0;
    int map = open("/proc/self/pagemap", O_RDONLY);
    if (pread(map, &entry, 8, (uintptr_t)d->memory / 4096 * 8) != 8 || !(entry & ((1ull << 55) - 1)))
        return broken("its physical address");
    close(map);
    d->physical = (entry & ((1ull << 55) - 1)) * 4096;
    return 0;
}

#define U8(at) (*(volatile uint8_t *)(at))
#define U16(at) (*(volatile uint16_t *)(at))
#define U32(at) (*(volatile uint32_t *)(at))
#define U64(at) (*(volatile uint64_t *)(at))

static uint8_t *ring(struct device *d, int queue) { return d->memory + RINGS + queue * RINGS_APART; }

/* Brings the device of this kind up, with all queues up to `queue`, on which messages will go. */
static int bring_up(struct device *d, int kind, int queue) {
    char folder[400], path[700];
    uint8_t config[256] = {0};
    memset(d, 0, sizeof *d);
    if (taken(kind, folder, sizeof folder) || shared_memory(d))
        return -1;
    snprintf(path, sizeof path, "%s/config", folder);
    int file = open(path, O_RDWR);
    if (file < 0 || pread(file, config, sizeof config, 0) < 64)
        return broken("its configuration");
    /* Memory and bus master. */
    uint16_t command = 0x6;
    if (pwrite(file, &command, 2, 4) != 2)
        return broken("its command register");
    close(file);
    for (int at = config[0x34]; at; at = config[at + 1]) {
        uint32_t offset;
        memcpy(&offset, config + at + 8, 4);
        if (config[at] != 0x09)
            continue;
        if (config[at + 3] == 1)
            d->common = region(folder, config[at + 4], offset);
        if (config[at + 3] == 2) {
            d->notify = region(folder, config[at + 4], offset);
            memcpy(&d->multiplier, config + at + 16, 4);
        }
    }
    if (!d->common || !d->notify)
        return broken("its registers");
    U8(d->common + 20) = 0;
    while (U8(d->common + 20))
        ;
    U8(d->common + 20) = 1 | 2;
    /* VIRTIO_F_VERSION_1, and nothing else. */
    U32(d->common + 8) = 0, U32(d->common + 12) = 0;
    U32(d->common + 8) = 1, U32(d->common + 12) = 1;
    U8(d->common + 20) = 1 | 2 | 8;
    if (!(U8(d->common + 20) & 8))
        return broken("its features");
    for (int q = 0; q <= queue; q++) {
        uint64_t at = d->physical + RINGS + q * RINGS_APART;
        U16(d->common + 22) = q;
        U16(d->common + 24) = QUEUE;
        U64(d->common + 32) = at;
        U64(d->common + 40) = at + 0x1000;
        U64(d->common + 48) = at + 0x2000;
        U16(d->common + 28) = 1;
    }
    U16(d->common + 22) = queue;
    d->notify += U16(d->common + 30) * d->multiplier;
    d->queue = queue;
    U8(d->common + 20) = 1 | 2 | 4 | 8;
    return 0;
}

/* Sends `length` bytes at REQUEST; the answer is at ANSWER. Its length, or -1 when none came within seconds. */
static int exchange(struct device *d, uint32_t length) {
    uint8_t *table = ring(d, d->queue), *avail = table + 0x1000, *used = table + 0x2000;
    memset(d->memory + ANSWER, 0, 64);
    uint64_t places[2] = {d->physical + REQUEST, d->physical + ANSWER};
    uint32_t lengths[2] = {length, MESSAGE};
    for (int i = 0; i < 2; i++) {
        U64(table + i * 16) = places[i];
        U32(table + i * 16 + 8) = lengths[i];
        /* NEXT, then WRITE. */
        U16(table + i * 16 + 12) = i ? 2 : 1;
        U16(table + i * 16 + 14) = 1;
    }
    U16(avail + 4 + d->sent % QUEUE * 2) = 0;
    __sync_synchronize();
    U16(avail + 2) = ++d->sent;
    __sync_synchronize();
    U16(d->notify) = d->queue;
    for (time_t until = time(NULL) + 10; U16(used + 2) != d->sent;)
        if (time(NULL) > until)
            return broken("no answer");
    return (int)U32(used + 4 + (d->sent - 1) % QUEUE * 8 + 4);
}
