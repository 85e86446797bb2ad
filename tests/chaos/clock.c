/* Lets the clock of a process jump: CLOCK_REALTIME is off by the seconds in the file $CHAOS_CLOCK.
 *
 * libfaketime also changes the sleeps of a process, which breaks time.sleep of Python. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void)
{
	const char *path = getenv("CHAOS_CLOCK");
	char text[32] = "";
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (file < 0)
		return 0;
	if (read(file, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(file);
	return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t id, struct timespec *at)
{
	int failed = syscall(SYS_clock_gettime, id, at);

	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		at->tv_sec += offset();
	return failed;
}

int gettimeofday(struct timeval *at, void *zone)
{
	int failed = syscall(SYS_gettimeofday, at, zone);

	if (!failed && at)
		at->tv_sec += offset();
	return failed;
}

time_t time(time_t *at)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
