// SPDX-License-Identifier: Apache-2.0
// The program `gpuhook` of the tarball: the command line with the Python of its own directory.
// It is linked statically and finds its directory itself, so it runs from any place, also in a
// root file system without a C library and without a shell.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCRIPT                                                                                     \
	"import sys; tree = sys.argv[1]; sys.argv[:2] = [tree + '/gpuhook']; "                     \
	"sys.path[:0] = [tree + '/lib/gpuhook', tree + '/lib/packages', tree + '/lib/plugin']; "   \
	"from gpuhook.cli import main; main(prog_name='gpuhook')"

static int directory(const char *program, char *path)
{
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);

	if (length > 0)
		path[length] = '\0';
	else if (!realpath(program, path)) // no /proc, as in a chroot
		return 0;
	char *end = strrchr(path, '/');
	if (!end)
		return 0;
	*end = '\0';
	return 1;
}

int main(int argc, char **argv)
{
	char tree[PATH_MAX], loader[PATH_MAX + 32], libraries[PATH_MAX + 32], python[PATH_MAX + 32];
	char **words = calloc(argc + 10, sizeof *words);
	int count = 0;

	if (!words || !directory(argv[0], tree)) {
		fputs("gpuhook: cannot find its own directory: call it by its path, or mount /proc\n",
		      stderr);
		return 1;
	}
	snprintf(loader, sizeof loader, "%s/python/lib/ld.so", tree);
	snprintf(libraries, sizeof libraries, "%s/python/lib", tree);
	snprintf(python, sizeof python, "%s/python/bin/python3", tree);
	words[count++] = loader;
	words[count++] = "--inhibit-cache";
	words[count++] = "--library-path";
	words[count++] = libraries;
	words[count++] = python;
	words[count++] = "-IS";
	words[count++] = "-c";
	words[count++] = SCRIPT;
	words[count++] = tree;
	for (int n = 1; n < argc; n++)
		words[count++] = argv[n];
	execv(loader, words);
	perror(loader);
	return 1;
}
