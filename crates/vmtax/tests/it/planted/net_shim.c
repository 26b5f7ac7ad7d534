/* Preloaded into a QEMU or passt: each write of a packet to a tap, or to an Internet socket, is late by DELAY_NS, and each interrupt
 * that QEMU has KVM deliver by INTERRUPT_NS. A CPU spends that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void spend(long long ns)
{
	for (long long until = now() + ns; now() < until;)
		;
}

static void delay(void)
{
	spend(DELAY_NS);
}

#ifdef INTERRUPT_NS
int ioctl(int fd, unsigned long request, ...)
{
	static int (*real)(int, unsigned long, ...);
	va_list arguments;
	void *argument;
	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (!real)
		real = dlsym(RTLD_NEXT, "ioctl");
	if (request == KVM_SIGNAL_MSI)
		spend(INTERRUPT_NS);
	return real(fd, request, argument);
}
#endif

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
	static ssize_t (*real)(int, const struct iovec *, int);
	static int tap = -1;
	struct stat file;
	if (!real)
		real = dlsym(RTLD_NEXT, "writev");
	/* /dev/net/tun is device 10:200. */
	if (tap < 0 && !fstat(fd, &file) && S_ISCHR(file.st_mode) && file.st_rdev == makedev(10, 200))
		tap = fd;
	if (fd == tap)
		delay();
	return real(fd, pieces, count);
}

/* slirp's, with the address of an Internet socket. */
ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to, socklen_t length)
{
	static ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	if (!real)
		real = dlsym(RTLD_NEXT, "sendto");
	if (to && to->sa_family == AF_INET)
		delay();
	return real(fd, data, bytes, flags, to, length);
}

/* passt's, of datagrams. */
int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
	static int (*real)(int, struct mmsghdr *, unsigned int, int);
	if (!real)
		real = dlsym(RTLD_NEXT, "sendmmsg");
	delay();
	return real(fd, messages, count, flags);
}
