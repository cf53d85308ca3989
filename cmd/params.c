/* params.c - names the keys that were asked for, and checks what a store can do. */
#include "params.h"

#include "mask.h"

#include <stdio.h>
#include <string.h>

struct clean
params_keys(const struct params *p)
{
	const size_t size = 400, last = sizeof " and 15 more"; /* as text_key() has it */
	struct clean all = text_key(p->keys[0]);
	size_t used = 0;
	char key[120];

	for (size_t i = 0; i < p->nkeys && p->nkeys > 1; i++) {
		const char *between = i == 0 ? "" : i + 1 < p->nkeys ? ", " : " and ";

		text_name(key, sizeof key, p->keys[i]);
		if (used + strlen(between) + strlen(key) + last > size) {
			snprintf(
			    all.text + used, size - used, " and %zu more", p->nkeys - i);
			break;
		}
		used += snprintf(all.text + used, size - used, "%s%s", between, key);
	}
	return all;
}

const char *
params_lone_user(const struct params *p, const char *url, size_t *n)
{
	for (size_t i = 0; i < p->site.nsettings; i++)
		if (strcmp(p->site.settings[i].name, "password-file") == 0)
			return NULL;
	return mask_lone_user(url, n);
}

const char *
params_awaited(const struct params *p, unsigned i)
{
	return i < KEYS_MAX ? p->keys[i] : p->before.switches[i - KEYS_MAX];
}

enum rc
params_check_switches(const struct params *p, const struct store *s, struct fault *f)
{
	bool one = s->caps & ONE_LOCK;

	if (p->before.nswitches == 0 || (!one && (s->caps & CAP_FREEZE)))
		return RC_OK;
	return fault_set(f, RC_CONFIG,
	    "%s %s, so that nobody could freeze %s, which --unless-frozen names: a run that needs no such switch says --unless-frozen=",
	    s->where,
	    one ? "has one lock, which a setting names, whatever the key"
		: "cannot freeze locks (dlock-backends(7) says which backends can)",
	    text_key(p->before.switches[0]).text);
}

enum rc
params_check_newest(const struct params *p, const struct store *s, struct fault *f)
{
	if (!p->before.newest || ((s->caps & CAP_FAIR) && s->backend->admin))
		return RC_OK;
	return fault_set(f, RC_CONFIG,
	    "%s has no queue in which one sees who came last, which --newest needs (dlock-backends(7) says which backends have one)",
	    s->where);
}

enum rc
params_check_kind(const struct params_claim *c, const struct store *s, struct fault *f)
{
	if ((c->kind == KIND_SHARED && !(s->caps & CAP_SHARED)) ||
	    (c->kind == KIND_LIMIT && !(s->caps & CAP_LIMIT)))
		return fault_set(f, RC_CONFIG,
		    "%s has no %s locks (dlock-backends(7) says which backends have them)",
		    s->where, c->kind == KIND_SHARED ? "shared" : "limited");
	if (job_is_wanted(&c->job) && !(s->caps & CAP_JOB))
		return fault_set(f, RC_CONFIG,
		    "%s cannot remember runs, which --once and --cooldown need (dlock-backends(7) says which backends can)",
		    s->where);
	if (c->job.remember == REMEMBER_SURELY && !(s->caps & CAP_JOB))
		return fault_set(f, RC_CONFIG,
		    "%s cannot remember runs, which --remember needs (dlock-backends(7) says which backends can)",
		    s->where);
	return RC_OK;
}
