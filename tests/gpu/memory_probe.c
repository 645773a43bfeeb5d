/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates memory of the first GPU that it sees: as many MiB as its first argument says, or "all",
 * until an allocation fails. Prints "held <MiB> <status>", the status of CUDA: 0, or that of the
 * allocation that failed (2 is CUDA_ERROR_OUT_OF_MEMORY). With "info" it prints "told <MiB> <MiB>",
 * what cuMemGetInfo says is the total and free, and ends. With a second argument it waits for a
 * file /go, allocates so many MiB more, prints again, and waits for a signal. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define CHUNK (64 * MIB)

static void *cuda;

static int call_init(const char *name, int a, void *b)
{
	int (*call)() = (int (*)())dlsym(cuda, name);
	return !call ? -1 : b ? call(b, 0, a) : call(a);
}

static int allocate(size_t bytes)
{
	static int (*call)(unsigned long long *, size_t);
	unsigned long long memory = 0;

	if (!call)
		call = (int (*)(unsigned long long *, size_t))dlsym(cuda, "cuMemAlloc_v2");
	return call ? call(&memory, bytes) : -1;
}

/* Returns the status; *held grows by what was allocated, in chunks. */
static int take(size_t wanted, size_t *held)
{
	size_t end = *held + wanted;
	int status = 0;

	while (*held < end) {
		size_t next = end - *held < CHUNK ? end - *held : CHUNK;
		status = allocate(next);
		if (status)
			break;
		*held += next;
	}
	printf("held %zu %d\n", *held / MIB, status);
	fflush(stdout);
	return status;
}

/* Returns the status. */
static int tell(void)
{
	int (*call)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(cuda, "cuMemGetInfo_v2");
	size_t free = 0, total = 0;
	int status = call ? call(&free, &total) : -1;

	printf("told %zu %zu\n", total / MIB, free / MIB);
	return status;
}

int main(int argc, char **argv)
{
	void *context = NULL;
	size_t held = 0;
	int status;

	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (!cuda) {
		printf("%s\n", dlerror());
		return 1;
	}
	status = call_init("cuInit", 0, NULL);
	if (!status)
		status = call_init("cuCtxCreate_v2", 0, &context);
	if (status) {
		printf("no context: %d\n", status);
		return 1;
	}
	if (argc < 2)
		return 2;
	if (!strcmp(argv[1], "info"))
		return tell();
	take(strcmp(argv[1], "all") ? strtoul(argv[1], NULL, 10) * MIB : ~(size_t)0 / 2, &held);
	if (argc > 2) {
		while (access("/go", F_OK))
			usleep(50000);
		take(strtoul(argv[2], NULL, 10) * MIB, &held);
	}
	pause();
	return 0;
}
