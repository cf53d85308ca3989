/* shell.c - writes what a POSIX shell is given to evaluate. */
#include "shell.h"

#include <string.h>

bool
shell_is_meant(char **words)
{
	while (*words && strcmp(*words, "--shell") != 0)
		words++;
	return *words;
}

void
shell_export(FILE *to, const char *name, const char *value)
{
	fprintf(to, "export %s='", name);
	for (; *value; value++)
		if (*value == '\'')
			fputs("'\\''", to);
		else
			putc(*value, to);
	fputs("';\n", to);
}

void
shell_status(FILE *to, int status)
{
	if (status != 0)
		fprintf(to, "(exit %d)\n", status);
}
