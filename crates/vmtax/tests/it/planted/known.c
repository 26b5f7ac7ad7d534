/* Burns known shares of a CPU: fifty 50 %, thirty 30 %, twenty 20 %, below one caller, on a thread of its own; the
 * main thread blocks on a futex that its only other owner never gives back. With an argument it ends after that many
 * seconds. With a second one two more threads share a lock, whose address it prints: "holder" has it three quarters of the
 * time, "waiter" is blocked on it about 70 % of the time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile unsigned long sink;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static inline __attribute__((always_inline)) void spin(int rounds)
{
    for (int i = 0; i < rounds * 1000; i++)
        sink = sink * 3 + 1;
}

/* Without frame pointers, and with a stack of its own, so that unwinding needs .eh_frame. */
#define BURN(name, rounds)                          \
    static __attribute__((noinline)) int name(int n) \
    {                                               \
        volatile char room[200];                    \
        room[n & 127] = 1;                          \
        spin(rounds);                               \
        return room[n & 127];                       \
    }
BURN(fifty, 50)
BURN(thirty, 30)
BURN(twenty, 20)

static __attribute__((noinline)) int caller(int n)
{
    return fifty(n) + thirty(n) + twenty(n) + 1;
}

static void *burner(void *argument)
{
    pthread_setname_np(pthread_self(), "burner");
    pthread_mutex_lock(&lock);
    for (int n = 0;; n++)
        sink += caller(n);
    return argument;
}

static __attribute__((noinline)) void waits_for_lock(void)
{
    pthread_mutex_lock(&lock);
    sink = 0;
}

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) void *holder(void *argument)
{
    pthread_setname_np(pthread_self(), "holder");
    for (;;) {
        pthread_mutex_lock(&shared);
        usleep(75000);
        pthread_mutex_unlock(&shared);
        usleep(25000);
    }
    return argument;
}

/* Comes back just after the holder did. */
static __attribute__((noinline)) void *waiter(void *argument)
{
    pthread_setname_np(pthread_self(), "waiter");
    for (;;) {
        pthread_mutex_lock(&shared);
        pthread_mutex_unlock(&shared);
        usleep(30000);
    }
    return argument;
}

int main(int count, char **words)
{
    pthread_t thread;
    if (count > 1)
        alarm(atoi(words[1]));
    pthread_create(&thread, NULL, burner, NULL);
    if (count > 2) {
        printf("%p\n", (void *)&shared);
        fflush(stdout);
        pthread_create(&thread, NULL, holder, NULL);
        pthread_create(&thread, NULL, waiter, NULL);
    }
    usleep(50000);
    waits_for_lock();
    return 0;
}
