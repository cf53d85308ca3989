/* survey.c - goes through the locks below a path, or to one of them. */
#include "survey.h"

#include "sight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32 /* locks that are looked at side by side */ };

/* One of them. */
struct found {
	char key[KEY_BYTES + 1];
	struct sight sight;
};

/* ---- one lock ---- */

static enum rc
tell_last_run(struct looking *l, const struct lockdir *d, struct fault *f)
{
	char path[JOBS_DIR_BYTES + 8];
	struct past_run run;
	struct call *c;
	int code;
	enum rc rc;

	jobs_path(path, d);
	snprintf(path + strlen(path), 8, "/last");
	c = call_get(l->session, path);
	rc = call_await(c, l->look->until, &code, f);
	if (rc == RC_OK && code == ZOK && jobs_read(&run, c)) {
		tell_note_time(l, call_stat(c));
		tell_last(l, &run);
		jobs_forget(&run);
	}
	call_drop(c);
	return rc == RC_DENIED ? RC_OK : rc; /* others' jobs */
}

enum rc
survey_one(
    struct session *s, const struct lockdir *d, const struct look *look, struct fault *f)
{
	struct looking l = {.session = s, .layout = d->layout, .look = look};
	struct sight v;
	int code;
	enum rc rc = call_finish(call_sync(s, "/"), look->until, &code, f);

	if (rc != RC_OK)
		return rc;
	sight_begin(&v, &l, look->key ? look->key : d->path, d->path);
	rc = sight_list(&v, &l, f);
	if (rc == RC_OK)
		rc = sight_tell(&v, &l, f);
	if (rc == RC_OK && look->key && !l.enough)
		rc = tell_last_run(&l, d, f);
	sight_end(&v);
	return rc;
}

/* ---- all of them ---- */

/* As many of the names from `i` on as a batch has room for, and are keys'. */
static size_t
begin_batch(struct looking *l, struct found v[BATCH], const char *chroot,
    const struct names *names, size_t *i)
{
	char path[DIR_BYTES];
	size_t found = 0;

	for (; found < BATCH && *i < names->n; ++*i) {
		struct found *next = &v[found];
		const char *name = names->at[*i];

		if (!lockdir_key(next->key, chroot, name))
			continue;
		snprintf(path, sizeof path, "%s/%s", chroot, name);
		sight_begin(&next->sight, l, next->key, path);
		found++;
	}
	return found;
}

static enum rc
tell_batch(struct looking *l, struct found v[BATCH], size_t n, struct fault *f)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < n && rc == RC_OK; i++)
		rc = sight_list(&v[i].sight, l, f);
	for (size_t i = 0; i < n && rc == RC_OK && !l->enough; i++)
		rc = sight_tell(&v[i].sight, l, f);
	for (size_t i = 0; i < n; i++)
		sight_end(&v[i].sight);
	return rc;
}

static enum rc
look_through(
    struct looking *l, const char *chroot, const struct names *names, struct fault *f)
{
	struct found *v = calloc(BATCH, sizeof *v);
	enum rc rc = RC_OK;

	if (!v)
		return fault_set(f, RC_SYSTEM, "out of memory");
	for (size_t i = 0; rc == RC_OK && i < names->n && !l->enough;)
		rc = tell_batch(l, v, begin_batch(l, v, chroot, names, &i), f);
	free(v);
	return rc;
}

enum rc
survey_all(struct session *s, const struct layout *layout, const char *chroot,
    const struct look *look, struct fault *f)
{
	struct looking l = {.session = s, .layout = layout, .look = look};
	struct call *list;
	struct names names = {NULL, 0};
	int code;
	enum rc rc = call_finish(call_sync(s, "/"), look->until, &code, f);

	if (rc != RC_OK)
		return rc;
	list = call_list(s, *chroot ? chroot : "/");
	rc = call_await(list, look->until, &code, f);
	if (rc == RC_OK)
		rc = names_copy(&names, list, f);
	if (rc == RC_OK) {
		names_sort(&names);
		rc = look_through(&l, chroot, &names, f);
	}
	names_free(&names);
	call_drop(list);
	return rc;
}
