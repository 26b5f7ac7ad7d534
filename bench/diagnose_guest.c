/* The guest of bench/diagnose.py: its first process does one kind of work for ever, by `work=` of the kernel's command line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <linux/fs.h>
#include <unistd.h>

static uint64_t next_random(void) {
    static uint64_t seed;
    if (!seed) seed = 88172645463325252ull + (uint64_t)getpid();
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

/* Requests of `size` bytes at random places of a disk, past the guest's page cache. */
static void requests(const char *disk, size_t size, int is_write) {
    int file = open(disk, O_RDWR | O_DIRECT);
    uint64_t bytes = 0;
    void *buffer = aligned_alloc(4096, size);
    if (file < 0 || ioctl(file, BLKGETSIZE64, &bytes) || bytes < size || !buffer) exit(1);
    memset(buffer, 7, size);
    for (;;) {
        off_t at = (off_t)(next_random() % (bytes / size) * size);
        if ((is_write ? pwrite(file, buffer, size, at) : pread(file, buffer, size, at)) < 0) exit(1);
    }
}

static void children(int count, const char *disk, size_t size, int is_write) {
    while (count--) if (!fork()) requests(disk, size, is_write);
}

/* Opens, reads and closes the files of a tree, after each was named once. */
static void files(const char *type, const char *options, int is_read) {
    mkdir("/tree", 0755);
    if (mount("src", "/tree", type, 0, options)) perror("mount"), exit(1);
    static char names[50000][32];
    size_t count = 0;
    DIR *folder = opendir("/tree");
    for (struct dirent *entry; folder && count < 50000 && (entry = readdir(folder));)
        if (entry->d_name[0] != '.') snprintf(names[count++], sizeof names[0], "/tree/%.20s", entry->d_name);
    struct stat data;
    for (size_t i = 0; i < count; i++) stat(names[i], &data);
    printf("ready\n");
    for (char part[65536]; count;) {
        int file = open(names[next_random() % count], O_RDONLY);
        if (is_read) while (read(file, part, sizeof part) > 0) {}
        close(file);
    }
}

int main(void) {
    char line[4096] = "";
    mkdir("/proc", 0755), mkdir("/dev", 0755);
    mount("proc", "/proc", "proc", 0, NULL), mount("dev", "/dev", "devtmpfs", 0, NULL);
    setvbuf(stdout, NULL, _IONBF, 0);
    int file = open("/proc/cmdline", O_RDONLY);
    if (read(file, line, sizeof line - 1) < 0) return 1;
    char *work = strstr(line, "work=");
    work = strtok(work ? work + 5 : "idle", " \n");
    printf("work %s\n", work);
    if (!strcmp(work, "cpu")) for (;;) next_random();
    else if (!strcmp(work, "read")) children(2, "/dev/vda", 4096, 0);
    else if (!strcmp(work, "write")) children(2, "/dev/vda", 4096, 1);
    else if (!strncmp(work, "two-disks-", 10)) {
        size_t size = (size_t)atoi(work + 10) << 10;
        children(4, "/dev/vda", size, 0), children(4, "/dev/vdb", size, 0);
    }
    else if (!strcmp(work, "9p")) files("9p", "trans=virtio,version=9p2000.L,cache=loose", 0);
    else if (!strcmp(work, "virtiofs")) files("virtiofs", NULL, 1);
    for (;;) pause();
}
