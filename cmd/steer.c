/* steer.c - asks before it acts. */
#include "steer.h"

#include "options.h"
#include "parse.h"
#include "say.h"
#include "status.h"
#include "text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool
steer_can_ask(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool
steer_ask(const char *question)
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

int
steer_refuse(struct looking *l, const char *key, enum rc rc, const struct fault *f)
{
	return look_refuse(l->plan, options_cmd(l->plan->cmd), key, rc, f);
}

const char *
steer_ago(const struct view *v, int64_t since, char *out, size_t size)
{
	int64_t ago = view_ago(v, since);
	char time[32];

	*out = '\0';
	if (ago >= 0)
		snprintf(
		    out, size, " for %s", parse_duration_text(ago, time, sizeof time));
	return out;
}
