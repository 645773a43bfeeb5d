/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the dynamic loader for each NAME and prints, as one JSON object, the path that it chose
 * and that path with all links resolved, or its error.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void words(const char *bytes)
{
	putchar('"');
	for (; *bytes; bytes++) {
		if (*bytes == '"' || *bytes == '\\')
			putchar('\\');
		putchar(*bytes < 0x20 ? ' ' : *bytes);
	}
	putchar('"');
}

int main(int count, char **given)
{
	putchar('{');
	for (int i = 1; i < count; i++) {
		struct link_map *map = NULL;
		void *library = dlopen(given[i], RTLD_NOW | RTLD_LOCAL);
		if (i > 1)
			putchar(',');
		words(given[i]);
		if (library && !dlinfo(library, RTLD_DI_LINKMAP, &map)) {
			char *real = realpath(map->l_name, NULL);
			printf(":{\"path\":");
			words(map->l_name);
			printf(",\"real\":");
			words(real ? real : "");
			putchar('}');
			free(real);
		} else {
			const char *error = dlerror();
			printf(":{\"error\":");
			words(error ? error : "no reason given");
			putchar('}');
		}
	}
	printf("}\n");
	return 0;
}
