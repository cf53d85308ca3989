/* plan.c - names the keys of a plan, and checks that a store can do what it asks for. */
#include "plan.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

const char *
plan_variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

char *
plan_name(const struct plan *p, char *out, size_t size)
{
	const size_t last = sizeof " and 15 more";
	size_t used = 0;
	char key[120];

	if (p->nkeys == 1)
		return text_name(out, size, p->keys[0]);
	for (size_t i = 0; i < p->nkeys; i++) {
		const char *between = i == 0 ? "" : i + 1 < p->nkeys ? ", " : " and ";

		text_name(key, sizeof key, p->keys[i]);
		if (used + strlen(between) + strlen(key) + last > size) {
			snprintf(out + used, size - used, " and %zu more", p->nkeys - i);
			break;
		}
		used += snprintf(out + used, size - used, "%s%s", between, key);
	}
	return out;
}

enum rc
plan_check_kind(const struct plan_claim *c, const struct store *s, struct fault *f)
{
	if ((c->kind == KIND_SHARED && !(s->caps & CAP_SHARED)) ||
	    (c->kind == KIND_LIMIT && !(s->caps & CAP_LIMIT)))
		return fault_set(f, RC_CONFIG,
		    "%s has no %s locks (dlock-backends(7) says who has)", s->where,
		    c->kind == KIND_SHARED ? "shared" : "limited");
	if (job_is_wanted(&c->job) && !(s->caps & CAP_JOB))
		return fault_set(f, RC_CONFIG,
		    "%s cannot remember runs, as --once and --cooldown need (dlock-backends(7) says who can)",
		    s->where);
	return RC_OK;
}
