// SPDX-License-Identifier: Apache-2.0
// The programs `gpuhook` and `kubectl-gpuhook` of the tarball, by the name of the call: the command
// line with the Python of its own directory. It is linked statically and finds its directory itself,
// so it runs from any place, also in a root file system without a C library and without a shell.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCRIPT                                                                                     \
	"import sys; tree, name = sys.argv[1:3]; sys.argv[:3] = [tree + '/' + name]; "             \
	"sys.path[:0] = [tree + '/lib/gpuhook', tree + '/lib/packages', tree + '/lib/plugin']; "   \
	"from gpuhook.cli"
#define MAIN "import main; main(prog_name=name)"
#define KUBECTL "kubectl-gpuhook"

static int directory(const char *program, char path[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);

	if (length == PATH_MAX) {
		errno = ENAMETOOLONG;
		return 0;
	}
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

// Return the path of a file of the tree, which is never a truncated one.
static char *below(const char *tree, const char *name)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof path, "%s/%s", tree, name) >= (int)sizeof path) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return strdup(path);
}

int main(int argc, char **argv)
{
	char tree[PATH_MAX];
	char **words = calloc(argc + 10, sizeof *words);
	int count = 0;

	if (!words || argc < 1 || !directory(argv[0], tree)) {
		perror("gpuhook: cannot find its own directory: call it by its path, or mount /proc");
		return 1;
	}
	char *loader = below(tree, "python/lib/ld.so");
	char *libraries = below(tree, "python/lib");
	char *python = below(tree, "python/bin/python3");
	if (!loader || !libraries || !python) {
		perror(tree);
		return 1;
	}
	const char *end = strrchr(argv[0], '/');
	int is_kubectl = !strcmp(end ? end + 1 : argv[0], KUBECTL);
	words[count++] = loader;
	words[count++] = "--inhibit-cache";
	words[count++] = "--library-path";
	words[count++] = libraries;
	words[count++] = python;
	words[count++] = "-IS";
	words[count++] = "-c";
	words[count++] = is_kubectl ? SCRIPT ".kubectl_plugin " MAIN : SCRIPT " " MAIN;
	words[count++] = tree;
	words[count++] = is_kubectl ? KUBECTL : "gpuhook";
	for (int n = 1; n < argc; n++)
		words[count++] = argv[n];
	execv(loader, words);
	perror(loader);
	return 1;
}
