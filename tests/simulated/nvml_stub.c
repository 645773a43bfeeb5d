/* SPDX-License-Identifier: Apache-2.0
 *
 * A small real libnvidia-ml.so.1 that answers from a text file: the file named by the environment
 * variable NVML_STUB_PROFILE, else nvml-stub.profile beside the library. Without one, the driver
 * is not loaded. Lines of the file, "#" starts a comment:
 *
 *   driver 580.95.05        version the library answers
 *   cuda 13000              1000 * major + 10 * minor
 *   init 18                 nvmlInit fails with this nvmlReturn_t
 *   gpu                     a GPU begins; the lines below belong to it
 *   uuid GPU-...            and so on: the facts by their names in gpuhook's inventory, those with
 *                           words by NVML's numbers; nvml_stub_facts.h lists them
 *   fail uuid 15            this question fails with this nvmlReturn_t: a fact, or handle
 *   instance 2              a MIG device begins: nvml_stub_mig.c
 *   lost_after 3            after so many questions, every one fails with NVML_ERROR_GPU_IS_LOST
 *
 * nvml_stub_watch.c has the keys of a GPU that is watched: events, topology, use; those of memory
 * limits are in nvml_stub_memory.c. A started library reads the profile again when it changes, and
 * without a profile every question fails.
 *
 * Compiled with -DNVML_STUB_OLD it has only the names of a library from before 2014.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SUCCESS = 0,
	UNINITIALIZED = 1,
	INVALID_ARGUMENT = 2,
	NOT_SUPPORTED = 3,
	NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7,
	DRIVER_NOT_LOADED = 9,
	GPU_IS_LOST = 15,
	NO_PERMISSION = 4,
	UNKNOWN = 999,
};

#define FACT(name) ASK_##name,
#define TEXT_FACT(name, function) FACT(name)
#define NUMBER_FACT(name, function) FACT(name)
#define SETTING_FACT(name, function) FACT(name)
enum question {
#include "nvml_stub_facts.h"
	HANDLE,
	QUESTIONS
};
#undef FACT

#define FACT(name) #name,
static const char *const question_names[QUESTIONS] = {
#include "nvml_stub_facts.h"
	"handle",
};
#undef FACT
#undef TEXT_FACT
#undef NUMBER_FACT
#undef SETTING_FACT

#define MAX_GPUS 64
#define TEXT 96

struct gpu {
	char facts[HANDLE][TEXT]; /* "" for one that the profile does not have */
	int lost_after, asked;
	int fail[QUESTIONS + 1]; /* the last: questions of nvml_stub_watch.c */
};

#define UUID_OF(gpu) ((gpu)->facts[ASK_uuid])
#define MEMORY_OF(gpu) strtoull((gpu)->facts[ASK_memory_bytes], NULL, 10)
#define IS_IN_MIG_MODE(gpu) (!strcmp((gpu)->facts[ASK_mig_mode], "enabled"))

static struct gpu gpus[MAX_GPUS];
static unsigned gpu_count;
static char driver[TEXT];
static int cuda, init_fails, started;

/* In nvml_stub_watch.c. */
static int watch_line(struct gpu *gpu, const char *key, const char *value);
static int watch_nested(void);
static int watch_left(void);
static int watch_gone(void);
static void watch_reset(void);
static unsigned long long watch_used(const struct gpu *gpu);

static void gpu_line(struct gpu *gpu, const char *key, const char *value)
{
	char word[32];
	int number;

	if (watch_line(gpu, key, value))
		return;
	for (int i = 0; i < HANDLE; i++)
		if (!strcmp(key, question_names[i]))
			snprintf(gpu->facts[i], TEXT, "%s", value);
	if (!strcmp(key, "lost_after"))
		gpu->lost_after = atoi(value);
	else if (!strcmp(key, "fail") && sscanf(value, "%31s %d", word, &number) == 2)
		for (int i = 0; i < QUESTIONS; i++)
			if (!strcmp(word, question_names[i]))
				gpu->fail[i] = number;
}

#include "nvml_stub_mig.c"

static void line_read(char *line)
{
	char *key = strtok(line, " \t\n"), *value = strtok(NULL, "\n");

	if (!key || key[0] == '#')
		return;
	if (!value)
		value = "";
	if (!strcmp(key, "driver"))
		snprintf(driver, sizeof driver, "%s", value);
	else if (!strcmp(key, "cuda"))
		cuda = atoi(value);
	else if (!strcmp(key, "init"))
		init_fails = atoi(value);
	else if (!strcmp(key, "gpu") && gpu_count < MAX_GPUS)
		gpus[gpu_count++] = (struct gpu){ .lost_after = -1 };
	else if (gpu_count && !mig_line(&gpus[gpu_count - 1], key, value))
		gpu_line(&gpus[gpu_count - 1], key, value);
}

static const char *profile_path(void)
{
	static int anchor;
	static char path[4096];
	const char *named = getenv("NVML_STUB_PROFILE");
	Dl_info info;
	const char *slash;

	if (named)
		return named;
	if (!dladdr(&anchor, &info) || !(slash = strrchr(info.dli_fname, '/')))
		return "";
	snprintf(path, sizeof path, "%.*s/nvml-stub.profile", (int)(slash - info.dli_fname),
		 info.dli_fname);
	return path;
}

static int profile_read(void)
{
	char line[256];
	FILE *profile = fopen(profile_path(), "re");

	if (!profile)
		return DRIVER_NOT_LOADED;
	gpu_count = 0;
	mig_count = 0;
	init_fails = 0;
	watch_reset();
	while (fgets(line, sizeof line, profile))
		line_read(line);
	fclose(profile);
	return SUCCESS;
}

static int start(void)
{
	if (started)
		return watch_nested();
	if (profile_read())
		return DRIVER_NOT_LOADED;
	started = !init_fails;
	return init_fails;
}

static int ask(const struct gpu *const_gpu, enum question question)
{
	struct gpu *gpu = (struct gpu *)const_gpu;

	if (!started)
		return UNINITIALIZED;
	if (watch_gone())
		return UNKNOWN;
	if (mig_of(gpu))
		return mig_ask(mig_of(gpu), question);
	if (gpu < gpus || gpu >= gpus + gpu_count)
		return INVALID_ARGUMENT;
	if (gpu->lost_after >= 0 && gpu->asked++ >= gpu->lost_after)
		return GPU_IS_LOST;
	return gpu->fail[question];
}

static int text(const char *value, char *buffer, unsigned size)
{
	if (strlen(value) >= size)
		return INSUFFICIENT_SIZE;
	strcpy(buffer, value);
	return SUCCESS;
}

static int count(unsigned *number)
{
	if (started && watch_gone())
		return UNKNOWN;
	*number = gpu_count;
	return started ? SUCCESS : UNINITIALIZED;
}

static int handle(unsigned index, struct gpu **gpu)
{
	if (index >= gpu_count)
		return INVALID_ARGUMENT;
	*gpu = &gpus[index];
	return ask(*gpu, HANDLE);
}

/* nvmlPciInfo_t: the first version ends after pci_device_id, the third has all of it. */
struct pci_v1 {
	char bus_id_legacy[16];
	unsigned domain, bus, device, pci_device_id;
};

struct pci_v3 {
	struct pci_v1 v1;
	unsigned pci_subsystem_id;
	char bus_id[32];
};

static int pci(const struct gpu *gpu, struct pci_v1 *info)
{
	const char *bus = gpu->facts[ASK_pci_bus_id];
	int failed = ask(gpu, ASK_pci_bus_id);

	if (failed)
		return failed;
	memset(info, 0, sizeof *info);
	/* The legacy form has a domain of four digits. */
	snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%.15s",
		 strlen(bus) > 4 ? bus + 4 : bus);
	sscanf(bus, "%x:%x:%x", &info->domain, &info->bus, &info->device);
	return SUCCESS;
}

#ifdef NVML_STUB_OLD
int nvmlInit(void) { return start(); }
int nvmlDeviceGetCount(unsigned *number) { return count(number); }
int nvmlDeviceGetHandleByIndex(unsigned index, struct gpu **gpu) { return handle(index, gpu); }
int nvmlDeviceGetPciInfo(const struct gpu *gpu, struct pci_v1 *info) { return pci(gpu, info); }
#else
int nvmlInit_v2(void) { return start(); }
int nvmlInitWithFlags(unsigned flags) { return flags ? INVALID_ARGUMENT : start(); }
int nvmlDeviceGetCount_v2(unsigned *number) { return count(number); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu) { return handle(index, gpu); }

int nvmlDeviceGetPciInfo_v3(const struct gpu *gpu, struct pci_v3 *info)
{
	int failed = pci(gpu, &info->v1);

	info->pci_subsystem_id = 0;
	snprintf(info->bus_id, sizeof info->bus_id, "%.31s",
		 failed ? "" : gpu->facts[ASK_pci_bus_id]);
	return failed;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = cuda;
	return cuda ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetCudaComputeCapability(const struct gpu *gpu, int *major, int *minor)
{
	int failed = ask(gpu, ASK_compute_capability);

	sscanf(gpu->facts[ASK_compute_capability], "%d.%d", major, minor);
	return failed;
}

int nvmlDeviceGetMigMode(const struct gpu *gpu, unsigned *current, unsigned *pending)
{
	int failed = ask(gpu, ASK_mig_mode);

	if (!failed && !strcmp(gpu->facts[ASK_mig_mode], "unsupported"))
		failed = NOT_SUPPORTED;
	*current = *pending = IS_IN_MIG_MODE(gpu);
	return failed;
}

const char *nvmlErrorString(int code)
{
	return code ? "an error of the simulated driver" : "Success";
}
#endif

int nvmlShutdown(void)
{
	int was = started;

	if (watch_left())
		return SUCCESS;
	started = 0;
	return was ? SUCCESS : UNINITIALIZED;
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned size)
{
	return started ? text(driver, buffer, size) : UNINITIALIZED;
}

static int text_fact(const struct gpu *gpu, enum question fact, char *buffer, unsigned size)
{
	int failed = ask(gpu, fact);

	return failed ? failed : text(gpu->facts[fact], buffer, size);
}

/* In nvml_stub_watch.c: a setting that was set since the profile was written. */
static int setting(const struct gpu *gpu, enum question fact, unsigned *number);

#define FACT(name)
#define TEXT_FACT(name, function)                                           \
	int function(const struct gpu *gpu, char *buffer, unsigned size)    \
	{                                                                   \
		return text_fact(gpu, ASK_##name, buffer, size);            \
	}
#define SETTING_FACT(name, function)                                        \
	int function(const struct gpu *gpu, unsigned *number)               \
	{                                                                   \
		int failed = ask(gpu, ASK_##name);                          \
                                                                            \
		return failed ? failed : setting(gpu, ASK_##name, number);  \
	}
#ifdef NVML_STUB_OLD
#define NUMBER_FACT(name, function)
#else
#define NUMBER_FACT(name, function)                                         \
	int function(const struct gpu *gpu, unsigned *number)               \
	{                                                                   \
		*number = atoi(gpu->facts[ASK_##name]);                     \
		return ask(gpu, ASK_##name);                                \
	}
#endif
#include "nvml_stub_facts.h"

struct memory {
	unsigned long long total, free, used;
};

int nvmlDeviceGetMemoryInfo(const struct gpu *gpu, struct memory *memory)
{
	unsigned long long total = MEMORY_OF(gpu), used = watch_used(gpu);

	*memory = (struct memory){ total, total - used, used };
	return ask(gpu, ASK_memory_bytes);
}

#include "nvml_stub_watch.c"
#include "nvml_stub_memory.c"
