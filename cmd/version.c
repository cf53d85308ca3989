/* version.c - dlock version: the version, and the backends with their URLs. */
#include "cmd.h"

#include "backends/backend.h"
#include "say.h"

#include <stdio.h>
#include <string.h>

/* Its name, then the forms of its URLs below each other. */
static void
show_backend(const struct backend *b)
{
	const char *name = b->name, *line = b->url_help;
	size_t n;

	for (; *line; line += n + (line[n] != '\0'), name = "") {
		n = strcspn(line, "\n");
		printf("  %-9s %.*s\n", name, (int)n, line);
	}
}

int
cmd_version(char **words)
{
	(void)words;
	puts("dlock " DLOCK_VERSION);
	for (size_t i = 0; backends[i]; i++)
		show_backend(backends[i]);
	return say_written();
}
