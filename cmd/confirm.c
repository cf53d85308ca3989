/* confirm.c - asks a person y/N. */
#include "confirm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool
confirm_can_ask(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool
confirm_yes(const char *question)
{
	char answer[16];

	fprintf(stderr, "%s [y/N] ", question);
	fflush(stderr);
	if (!fgets(answer, sizeof answer, stdin)) {
		fputc('\n', stderr);
		return false;
	}
	answer[strcspn(answer, "\n")] = '\0';
	return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}
