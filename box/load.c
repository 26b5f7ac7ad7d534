/* load DEVICE RATE READS: one request of 4 KiB at a time at random places of a disk, past the page cache, until killed: RATE a
 * second, or with 0 one after the other; READS in a hundred are reads. After each 16 writes the disk is flushed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096

int main(int count, char **words) {
    if (count != 4)
        return 2;
    long rate = atol(words[2]), reads = atol(words[3]), writes = 0;
    int disk = open(words[1], O_RDWR | O_DIRECT);
    unsigned long long size = 0;
    char *block = aligned_alloc(BLOCK, BLOCK);
    if (disk < 0 || ioctl(disk, BLKGETSIZE64, &size) || !block) {
        perror(words[1]);
        return 1;
    }
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (unsigned long random = 88172645463325252ul;;) {
        /* Marsaglia's xorshift64. */
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        off_t at = random % (size / BLOCK) * BLOCK;
        int is_read = (long)(random >> 32) % 100 < reads;
        if ((is_read ? pread(disk, block, BLOCK, at) : pwrite(disk, block, BLOCK, at)) != BLOCK) {
            perror("load");
            sleep(1);
        }
        if (!is_read && ++writes % 16 == 0)
            fdatasync(disk);
        if (!rate)
            continue;
        next.tv_nsec += 1000000000 / rate;
        next.tv_sec += next.tv_nsec / 1000000000, next.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
    }
}
