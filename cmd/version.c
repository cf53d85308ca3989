/* version.c - dlock version: the version, and the backends with their URLs. */
#include "cmd.h"

#include "backends/backend.h"
#include "say.h"

#include <stdio.h>

int
cmd_version(char **words)
{
	(void)words;
	puts("dlock " DLOCK_VERSION);
	for (size_t i = 0; backends[i]; i++)
		printf("  %-6s %s\n", backends[i]->name, backends[i]->url_help);
	return say_written();
}
