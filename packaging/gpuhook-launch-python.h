// SPDX-License-Identifier: Apache-2.0
// The call of Python in place of the shell: gpuhook-launch.c.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define IS(word, text) (!strcmp(word, text))
#define LARGEST (4 << 20)
#define MOST_WORDS 16

// Return the content of a regular file with an end, NULL if it cannot be read whole.
static char *content(const char *path, size_t *size)
{
	struct stat found;
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *data = NULL;

	if (file < 0)
		return NULL;
	if (!fstat(file, &found) && S_ISREG(found.st_mode) && found.st_size <= LARGEST)
		data = malloc(found.st_size + 1);
	if (data) {
		ssize_t length = read(file, data, found.st_size + 1);

		if (length != found.st_size) { // it changes
			free(data);
			data = NULL;
		} else {
			data[length] = '\0';
			*size = length;
		}
	}
	close(file);
	return data;
}

// Split the script's call of Python, found=$("..." -x '...' "$0" "$@"), into words, up to "$0". Return their number, 0 if it
// has none that ends.
static int split(char *text, char **words)
{
	char *at = strstr(text, "found=$(");

	if (!at)
		return 0;
	at += sizeof "found=$(" - 1;
	for (int count = 0; count < MOST_WORDS; count++) {
		char end = *at == '"' || *at == '\'' ? *at++ : ' ';

		words[count] = at;
		at = strchr(at, end);
		if (!at)
			return 0;
		*at++ = '\0';
		if (end != ' ' && *at++ != ' ')
			return 0;
		if (IS(words[count], "$0"))
			return count;
	}
	return 0;
}

// Read what a program prints, without newlines at its end, and return its status as a shell does.
static int answer(int file, pid_t child, char *text, size_t size)
{
	char rest[512];
	size_t length = 0;
	ssize_t got;
	int status;

	do {
		int is_full = length == size - 1;
		got = read(file, is_full ? rest : text + length, is_full ? sizeof rest : size - 1 - length);
		length += got > 0 && !is_full ? got : 0;
	} while (got > 0 || (got < 0 && errno == EINTR));
	close(file);
	while (length && text[length - 1] == '\n')
		length--;
	text[length] = '\0';
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Call Python as the script does, and do what the script does with the usual answers. Other answers are left to it.
static void ask_python(char **argv, int argc)
{
	char *script = argv[1], *command[MOST_WORDS + argc], found[PATH_MAX], number[16];
	size_t size;
	char *text = content(script, &size);
	int count = text ? split(text, command) : 0, ends[2];

	if (!count || pipe2(ends, O_CLOEXEC))
		return;
	if (ends[0] < 3) // a standard stream is closed: the pipe would replace it
		return;
	memcpy(command + count, argv + 1, argc * sizeof *argv);
	pid_t child = vfork();
	if (!child) {
		dup2(ends[1], 1);
		execv(command[0], command);
		_exit(127);
	}
	close(ends[1]);
	if (child < 0)
		return;
	int status = answer(ends[0], child, found, sizeof found);
	if (status == 3)
		exit(1);
	if (!status && found[0] == '/') {
		argv[1] = found;
		execv(found, argv + 1);
		argv[1] = script;
	}
	snprintf(number, sizeof number, "%d", status);
	if (setenv("GPUHOOK_PYTHON_STATUS", number, 1) || setenv("GPUHOOK_PYTHON_ANSWER", found, 1))
		exit(1);
}
