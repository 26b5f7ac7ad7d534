/* Takes a CPU for DELAY_NS at a class above all others, whenever the shim in a QEMU asks for it: QEMU's user may not.
 *
 * Its argument is the socket that it is asked at; it ends when its standard input is closed. */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

static unsigned long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int failed(const char *what) {
    perror(what);
    return 1;
}

int main(int count, char **words) {
    struct sockaddr_un here = {.sun_family = AF_UNIX}, asker;
    if (count != 2 || strlen(words[1]) >= sizeof here.sun_path)
        return 2;
    strcpy(here.sun_path, words[1]);
    int asked = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (asked < 0 || bind(asked, (struct sockaddr *)&here, sizeof here) || chmod(words[1], 0666))
        return failed("hog: socket");
    struct sched_param urgent = {.sched_priority = 50};
    if (sched_setscheduler(0, SCHED_FIFO, &urgent))
        return failed("hog: scheduling class");
    puts("ready");
    fflush(stdout);

    struct pollfd files[] = {{.fd = asked, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    while (poll(files, 2, -1) > 0 && !files[1].revents) {
        int cpu;
        socklen_t length = sizeof asker;
        if (recvfrom(asked, &cpu, sizeof cpu, 0, (struct sockaddr *)&asker, &length) != sizeof cpu)
            return failed("hog: question");
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one))
            return failed("hog: CPU");
        /* On that CPU now: whoever asked goes on, on another one. */
        sendto(asked, &cpu, sizeof cpu, 0, (struct sockaddr *)&asker, length);
        for (unsigned long long until = now() + DELAY_NS; now() < until;)
            ;
    }
    return 0;
}
