/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a kernel of about a millisecond on the first CUDA device again and again, on all of its
 * multiprocessors, and prints "kernels <count> <seconds>" after as many seconds as its argument
 * says. It starts when the file /go exists, so that several of them start together. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
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

static const char *SPIN =
	".version 7.0\n.target sm_50\n.address_size 64\n"
	".visible .entry spin(.param .u64 out, .param .u32 rounds)\n{\n"
	" .reg .pred %p; .reg .f32 %f; .reg .u32 %i, %n; .reg .u64 %a;\n"
	" ld.param.u64 %a, [out]; ld.param.u32 %n, [rounds];\n"
	" mov.f32 %f, 0f3F800000; mov.u32 %i, 0;\n"
	"AGAIN: fma.rn.f32 %f, %f, %f, %f; add.u32 %i, %i, 1;\n"
	" setp.lt.u32 %p, %i, %n; @%p bra AGAIN;\n"
	" st.global.f32 [%a], %f; ret;\n}\n";

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	void *context = NULL, *module = NULL, *kernel = NULL;
	unsigned long long out = 0;
	unsigned rounds = 200000;
	void *words[] = { &out, &rounds };
	double start, until = argc > 1 ? atof(argv[1]) : 1;
	long count = 0;

	if (!cuda) {
		printf("%s\n", dlerror());
		return 1;
	}
	CALL("cuInit", 0);
	CALL("cuCtxCreate_v2", &context, 0, 0);
	CALL("cuModuleLoadData", &module, SPIN);
	CALL("cuModuleGetFunction", &kernel, module, "spin");
	CALL("cuMemAlloc_v2", &out, (size_t)4096);
	puts("ready");
	fflush(stdout);
	while (access("/go", F_OK))
		usleep(1000);
	start = now();
	do {
		CALL("cuLaunchKernel", kernel, 512, 1, 1, 256, 1, 1, 0, NULL, words, NULL);
		CALL("cuCtxSynchronize");
		count++;
	} while (now() - start < until);
	printf("kernels %ld %.3f\n", count, now() - start);
	return 0;
}
