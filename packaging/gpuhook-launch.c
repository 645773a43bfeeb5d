// SPDX-License-Identifier: Apache-2.0
// The interpreter in the first line of gpuhook-runtime: it starts the low-level runtime where the shell and Python would do
// nothing else. These are commands other than create and run, and containers whose config.json has no word of a request. For
// other containers it calls Python as the script would. In any other case, also after any failure, the shell runs the script.
// It is linked statically, as a dynamic loader takes longer.
#define _GNU_SOURCE // pipe2(2)
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpuhook-launch-python.h"

#define BEGINS(word, text) (!strncmp(word, text, sizeof text - 1))

// prefilter.MARKS, and the default prefix of CDI annotations.
static const char *const marks[] = {
	"NVIDIA_VISIBLE_DEVICES", "\"CUDA_VERSION=", "nvidia-container-devices", "gpuhook-hook",
	"gpuhook/memory/", "io.gpuhook.record", "AMD_VISIBLE_DEVICES", "amd-container-devices",
	"cdi.k8s.io/", NULL};
// Settings of other words and of other runtimes, and their variables.
static const char *const keys[] = {"annotationPrefixes", "swarmResources", "lowLevelRuntimes", NULL};
static const char *const variables[] = {
	"GPUHOOK_CDI_ANNOTATION_PREFIXES", "GPUHOOK_REQUEST_SWARM_RESOURCES",
	"GPUHOOK_RUNTIME_LOW_LEVEL_RUNTIMES", NULL};
static const char *const runtimes[] = {"runc", "crun", NULL};
static const char *const directories = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

static int is_program(const char *path, const struct stat *script)
{
	struct stat found;

	return !stat(path, &found) && S_ISREG(found.st_mode) && !access(path, X_OK) &&
	       (found.st_dev != script->st_dev || found.st_ino != script->st_ino);
}

// Whether runtime.find_low_level() would search and find this path.
static int is_first(const char *low, const struct stat *script)
{
	char path[PATH_MAX];

	for (int n = 0; runtimes[n]; n++) {
		for (int part = 0; part < 2; part++) {
			const char *at = part ? directories : variable("PATH");

			for (const char *end; *at; at = *end ? end + 1 : end) {
				end = at + strcspn(at, ":");
				int length = snprintf(path, sizeof path, "%.*s/%s", (int)(end - at), at, runtimes[n]);
				if (length >= (int)sizeof path)
					return 0;
				if (end > at && is_program(path, script))
					return IS(path, low);
			}
		}
	}
	return 0;
}

// The recorded low-level runtime, as the script reads it: "" if there is none.
static void record(char *low, size_t size)
{
	const char *state = variable("GPUHOOK_STATE_DIR"), *user = variable("XDG_RUNTIME_DIR");
	char path[PATH_MAX];

	low[0] = '\0';
	if (!*state && *user && !IS(user, "/run/user/0"))
		return;
	if (snprintf(path, sizeof path, "%s/low-level-runtime", *state ? state : "/run/gpuhook") >= PATH_MAX)
		return;
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file < 0)
		return;
	ssize_t length = read(file, low, size - 1);
	close(file);
	low[length < 0 ? 0 : length] = '\0';
	low[strcspn(low, "\n")] = '\0';
}

// Whether JSON may have a word of a request in escaped characters: see prefilter.has_unusual_escapes().
static int has_escapes(const char *text, size_t size)
{
	const char *end = text + size;

	while ((text = memchr(text, '\\', end - text))) {
		if (text[1] == '/')
			return 1;
		if (BEGINS(text, "\\u00") && text[4] && strchr("234567", text[4]) && !BEGINS(text + 4, "26") &&
		    !(text[4] == '3' && text[5] && strchr("cCeE", text[5])))
			return 1;
		text++;
	}
	return 0;
}

static int has_mark(const char *text, size_t size)
{
	if (strlen(text) != size || has_escapes(text, size))
		return 1; // a NUL is not JSON
	for (int n = 0; marks[n]; n++)
		if (strstr(text, marks[n]))
			return 1;
	return 0;
}

// Whether the settings may have words of requests or runtimes: one of their keys, unless its line is a comment, in characters of
// which YAML takes none for the end of a line. A backslash may be part of an escaped key.
static int has_key(const char *text)
{
	if (strchr(text, '\\'))
		return 1;
	for (int n = 0; keys[n]; n++) {
		for (const char *at = text; (at = strstr(at, keys[n])); at++) {
			const char *line = at;

			while (line > text && line[-1] != '\n')
				if ((*--line < ' ' && *line != '\t') || *line & 0x80)
					return 1;
			if (line[strspn(line, " \t")] != '#')
				return 1;
		}
	}
	return 0;
}

static int has_own_settings(void)
{
	const char *path = variable("GPUHOOK_CONFIG");
	size_t size;

	for (int n = 0; variables[n]; n++)
		if (*variable(variables[n]))
			return 1;
	if (!*path)
		path = "/etc/gpuhook/config.yaml";
	if (access(path, F_OK))
		return 0;
	char *text = content(path, &size);
	int found = !text || strlen(text) != size || has_key(text);
	free(text);
	return found;
}

// Return the bundle of the words `create --bundle PATH`, as engines write them; NULL if it is not certain which file Python
// would read.
static const char *usual_bundle(char **words)
{
	const char *bundle = NULL;

	for (; *words; words++) {
		const char *word = *words;

		if (!bundle && (IS(word, "create") || IS(word, "run"))) {
			if (!words[1] || !IS(words[1], "--bundle") || !words[2])
				return NULL;
			bundle = words[2];
			words += 2;
		} else if ((word[0] == '-' && word[1] && word[1] != '-') || BEGINS(word, "---") ||
			   BEGINS(word, "--b") || BEGINS(word, "--f") || BEGINS(word, "--config")) {
			return NULL;
		}
	}
	return bundle;
}

static int needs_no_python(char **words, const char *low, int is_recorded, const struct stat *script)
{
	const char *bundle = usual_bundle(words);
	char path[PATH_MAX];
	size_t size;

	if (!bundle || has_own_settings() || (is_recorded && !is_first(low, script)))
		return 0;
	if (snprintf(path, sizeof path, "%s/config.json", bundle) >= (int)sizeof path)
		return 0;
	char *text = content(path, &size);
	int found = text && !has_mark(text, size);
	free(text);
	return found;
}

static int asks_for_version(char **words)
{
	for (; *words; words++)
		if (IS(*words, "--version") || IS(*words, "-v") || IS(*words, "-V"))
			return 1;
	return 0;
}

static int is_edited(char **words)
{
	for (; *words; words++)
		if (IS(*words, "create") || IS(*words, "run"))
			return 1;
	return 0;
}

// Whether the script would start `low` with these words, and do nothing else.
static int is_direct(char **words, const char *low, int is_recorded, const struct stat *script)
{
	// The shell and Python search a name in PATH, not in the working directory.
	return low[0] == '/' && is_program(low, script) &&
	       (!is_edited(words) || needs_no_python(words, low, is_recorded, script));
}

int main(int argc, char **argv)
{
	char low[PATH_MAX], shell[PATH_MAX] = "/bin/sh";
	const char *chosen = variable("GPUHOOK_LOW_LEVEL_RUNTIME");
	struct stat script;

	if (argc < 2) {
		fputs("gpuhook-launch: it is the interpreter of gpuhook-runtime\n", stderr);
		return 1;
	}
	char *name = argv[1];
	if (*chosen)
		snprintf(low, sizeof low, "%s", chosen);
	else
		record(low, sizeof low);
	if (strlen(chosen) < sizeof low && !stat(name, &script) && !asks_for_version(argv + 2)) {
		if (is_direct(argv + 2, low, !*chosen, &script)) {
			argv[1] = low;
			execv(low, argv + 1);
			argv[1] = name;
		}
		if (is_edited(argv + 2))
			ask_python(argv, argc);
	}
	// A runtime tree has its own shell next to this program.
	char *end = strrchr(argv[0], '/');
	if (end && (size_t)(end - argv[0]) < sizeof shell - 3) {
		snprintf(shell, sizeof shell, "%.*s/sh", (int)(end - argv[0]), argv[0]);
		if (access(shell, X_OK))
			strcpy(shell, "/bin/sh");
	}
	argv[0] = shell;
	execv(shell, argv);
	perror(shell);
	return 126;
}
