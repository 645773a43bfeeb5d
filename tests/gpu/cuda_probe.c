/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a CUDA context on each device that it sees, allocates 64 MiB there, prints
 * "cuda <devices> <bytes of the first>", and stays for as many seconds as its argument says. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CALL(name, ...)                                                      \
	do {                                                                 \
		int (*call)() = (int (*)())dlsym(cuda, name);                \
		int status = call ? call(__VA_ARGS__) : -1;                  \
		if (status) {                                                \
			printf("%s: %d\n", name, status);                    \
			return 1;                                            \
		}                                                            \
	} while (0)

int main(int argc, char **argv)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	size_t bytes = 0;
	int count = 0;

	if (!cuda) {
		printf("%s\n", dlerror());
		return 1;
	}
	CALL("cuInit", 0);
	CALL("cuDeviceGetCount", &count);
	for (int i = 0; i < count; i++) {
		size_t total = 0;
		void *context = NULL;
		unsigned long long memory = 0;

		CALL("cuDeviceTotalMem_v2", &total, i);
		CALL("cuCtxCreate_v2", &context, 0, i);
		CALL("cuMemAlloc_v2", &memory, (size_t)64 << 20);
		if (i == 0)
			bytes = total;
	}
	printf("cuda %d %zu\n", count, bytes);
	fflush(stdout);
	sleep(argc > 1 ? atoi(argv[1]) : 0);
	return 0;
}
