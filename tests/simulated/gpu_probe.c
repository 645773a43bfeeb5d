/* SPDX-License-Identifier: Apache-2.0
 *
 * A static program that uses memory of a simulated GPU, through the socket of driver_memory.py:
 *
 *   gpu-probe SOCKET UUID WORD...
 *
 * does what its words say, one after the other, and ends:
 *
 *   alloc MIB     prints "ok" or "out of memory", or why the driver refuses
 *   all           allocates what it gets, whole MiB, and prints "got N MiB"
 *   free MIB      gives so much back
 *   info          prints "total N MiB free N MiB", as cuMemGetInfo tells
 *   fork N        N children do the words that follow, each with memory of its own; this process
 *                 keeps its memory until they have ended
 *   hold          prints "holding" and keeps the memory until it is killed or the driver is gone
 *   pause         waits for SIGUSR1
 *   ignore        ignores SIGTERM from here on
 *
 * SIGTERM ends it even where it is the first process of a pid namespace. The exit status is 1 if
 * an allocation of this process or of a child failed, 2 for words that nobody understands, 3 if the
 * driver was gone, 143 after SIGTERM.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 1, MISUSED = 2, GONE = 3, ENDED = 143, BIG_STEP = 1 << 16 };

static const char *address, *uuid;
static int driver = -1, status;

static void ended(int number)
{
	(void)number;
	_exit(ENDED);
}

static void die(int code, const char *text)
{
	fprintf(stderr, "gpu-probe: %s\n", text);
	exit(code);
}

/* Connect from the socket's directory: a whole path may be longer than sun_path. */
static void connect_driver(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	const char *slash = strrchr(address, '/');
	char directory[4096];

	snprintf(directory, sizeof directory, "%.*s/", slash ? (int)(slash - address) : 0, address);
	snprintf(name.sun_path, sizeof name.sun_path, "%.107s", slash ? slash + 1 : address);
	driver = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (driver < 0 || (slash && chdir(directory)) ||
	    connect(driver, (struct sockaddr *)&name, sizeof name))
		die(GONE, "no driver at the socket");
}

/* Ask the driver and give back its answer, a line. */
static const char *asked(const char *verb, unsigned long mib)
{
	static char line[256];
	size_t length = snprintf(line, sizeof line, "%s %s %lu\n", verb, uuid, mib << 20);

	if (send(driver, line, length, MSG_NOSIGNAL) != (ssize_t)length)
		die(GONE, "the driver is gone");
	for (length = 0; length < sizeof line - 1; length++) {
		if (read(driver, line + length, 1) != 1)
			die(GONE, "the driver is gone");
		if (line[length] == '\n')
			break;
	}
	line[length] = 0;
	return line;
}

static int is_had(unsigned long mib) { return !strcmp(asked("alloc", mib), "ok"); }

/* A failed allocation is what "all" looks for. */
static void allocate_all(void)
{
	unsigned long got = 0;

	for (unsigned long step = BIG_STEP; step; step /= 2)
		while (is_had(step))
			got += step;
	printf("got %lu MiB\n", got);
}

static void allocate(unsigned long mib)
{
	const char *answer = asked("alloc", mib);

	printf("%s\n", answer);
	if (strcmp(answer, "ok"))
		status = FAILED;
}

/* Return whether this process is one of the children. */
static int is_forked(int number)
{
	int ended_as;

	while (number-- > 0) {
		pid_t child = fork();

		if (child < 0)
			die(GONE, "cannot fork");
		if (!child) {
			close(driver);
			connect_driver();
			status = 0;
			return 1;
		}
	}
	while (wait(&ended_as) > 0)
		if (ended_as)
			status = WIFEXITED(ended_as) ? WEXITSTATUS(ended_as) : FAILED;
	return 0;
}

static void hold(void)
{
	char nothing;

	puts("holding");
	while (read(driver, &nothing, 1) > 0)
		;
	exit(GONE);
}

static void wait_for_signal(void)
{
	sigset_t set;
	int number;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigwait(&set, &number);
}

/* Signals that come before their pause are kept, of the first process of a namespace, too. */
static void keep_signals(void)
{
	sigset_t set;

	signal(SIGTERM, ended);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

int main(int count, char **words)
{
	if (count < 4)
		die(MISUSED, "usage: gpu-probe SOCKET UUID WORD...");
	setvbuf(stdout, NULL, _IOLBF, 0);
	address = words[1];
	uuid = words[2];
	keep_signals();
	connect_driver();
	for (int i = 3; i < count; i++) {
		const char *word = words[i], *value = i + 1 < count ? words[i + 1] : "";

		if (!strcmp(word, "alloc"))
			allocate(strtoul(value, NULL, 10)), i++;
		else if (!strcmp(word, "free"))
			asked("free", strtoul(value, NULL, 10)), i++;
		else if (!strcmp(word, "all"))
			allocate_all();
		else if (!strcmp(word, "info"))
			puts(asked("info", 0));
		else if (!strcmp(word, "hold"))
			hold();
		else if (!strcmp(word, "pause"))
			wait_for_signal();
		else if (!strcmp(word, "ignore"))
			signal(SIGTERM, SIG_IGN);
		else if (strcmp(word, "fork"))
			die(MISUSED, word);
		else if (is_forked(atoi(value)))
			i++;
		else
			return status;
	}
	return status;
}
