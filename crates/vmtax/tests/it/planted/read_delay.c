/* Preloaded into QEMU: its reads take longer. Reads of PLANTED_BYTES, or all where that is not set, by PLANTED_NS; all by
   PLANTED_BOOT_NS more, which whoever starts QEMU may set for each boot. The wait keeps its CPU. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long long number(const char *name) {
    const char *text = getenv(name);
    return text ? atoll(text) : 0;
}

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static ssize_t wait_after(ssize_t bytes) {
    static long long planted, of, boot = -1;
    if (boot < 0) {
        planted = number("PLANTED_NS");
        of = number("PLANTED_BYTES");
        boot = number("PLANTED_BOOT_NS");
    }
    long long ns = boot + (of == 0 || of == bytes ? planted : 0);
    for (long long end = now() + ns; ns > 0 && now() < end;) {
    }
    return bytes;
}

ssize_t preadv64(int file, const struct iovec *into, int count, off64_t at) {
    return wait_after(syscall(SYS_preadv, file, into, count, at, 0));
}

ssize_t preadv(int file, const struct iovec *into, int count, off_t at) {
    return preadv64(file, into, count, at);
}

ssize_t pread64(int file, void *into, size_t bytes, off64_t at) {
    return wait_after(syscall(SYS_pread64, file, into, bytes, at));
}

ssize_t pread(int file, void *into, size_t bytes, off_t at) {
    return pread64(file, into, bytes, at);
}
