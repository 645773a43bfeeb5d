/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnvidia-ml.so.1 before the stub, nvml-real.so beside it, one of whose functions has a fault.
 * The file nvml-fault beside the library names it, "nvmlInit_v2 hang", and is read at each call:
 *
 *   hang       the call returns after the end of the fault
 *   crash      the call ends the process with SIGSEGV
 *   error N    the call returns this nvmlReturn_t, and does nothing
 *   garbage    the call succeeds, and what its first answer points to is overwritten
 *
 * Compiled with -DNAMES="F(nvmlInit_v2)...", the functions of the stub. Each call appends its name
 * to the file nvml-calls, if there is one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef long (*function)(long, long, long, long, long, long);

enum {
#define F(name) N_##name,
	NAMES
#undef F
	COUNT
};

static const char *const names[COUNT] = {
#define F(name) #name,
	NAMES
#undef F
};

static char place[PATH_MAX];
static function real[COUNT];

static const char *beside(char *path, const char *name)
{
	snprintf(path, PATH_MAX + 32, "%s/%s", place, name);
	return path;
}

__attribute__((constructor)) static void load(void)
{
	char path[PATH_MAX + 32];
	Dl_info own;
	void *library;

	if (!dladdr((void *)load, &own) || !realpath(own.dli_fname, place))
		abort();
	*strrchr(place, '/') = 0;
	library = dlopen(beside(path, "nvml-real.so"), RTLD_NOW | RTLD_LOCAL);
	if (!library)
		abort();
	for (int i = 0; i < COUNT; i++)
		real[i] = (function)dlsym(library, names[i]);
}

static void record(const char *name)
{
	char path[PATH_MAX + 32];
	int file = open(beside(path, "nvml-calls"), O_WRONLY | O_APPEND | O_CLOEXEC);

	if (file >= 0) {
		dprintf(file, "%s\n", name);
		close(file);
	}
}

/* Overwrite what an argument points to: a text's whole buffer, of which the length follows. */
static int overwrite(long argument, long following)
{
	size_t size = following > 4 && following <= 4096 ? (size_t)following : 4;

	if (argument <= 1 << 20)
		return 0;
	memset((void *)argument, 0xff, size);
	return 1;
}

/* Read the fault of a function into `kind`, and return whether it has one. */
static int has_fault(const char *function, char *kind, int *code)
{
	char path[PATH_MAX + 32], name[128] = "";
	FILE *file = fopen(beside(path, "nvml-fault"), "re");

	if (file) {
		if (fscanf(file, "%127s %31s %d", name, kind, code) < 2)
			name[0] = 0;
		fclose(file);
	}
	return !strcmp(name, function);
}

static long called(int number, const long *a)
{
	char kind[32] = "";
	long result;
	int code = 0, first, fails;

	record(names[number]);
	while ((fails = has_fault(names[number], kind, &code)) && !strcmp(kind, "hang"))
		usleep(20000);
	if (!fails)
		return real[number](a[0], a[1], a[2], a[3], a[4], a[5]);
	if (!strcmp(kind, "crash"))
		raise(SIGSEGV);
	if (!strcmp(kind, "error"))
		return code;
	result = real[number](a[0], a[1], a[2], a[3], a[4], a[5]);
	/* The first argument of a question about a device is its handle; most have one answer. */
	first = strstr(names[number], "nvmlDevice") && !strstr(names[number], "GetCount") &&
		!strstr(names[number], "GetHandle");
	if (!result && !strstr(names[number], "nvmlInit"))
		for (int i = first; i < 3 && !overwrite(a[i], a[i + 1]); i++)
			;
	return result;
}

#define F(name)                                                             \
	long name(long a, long b, long c, long d, long e, long f)           \
	{                                                                   \
		return called(N_##name, (long[]){ a, b, c, d, e, f });      \
	}
NAMES
