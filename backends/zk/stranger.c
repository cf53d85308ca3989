/* stranger.c - tells directories of other locks from nodes of locks that nobody knows. */
#include "stranger.h"

#include <stdio.h>
#include <string.h>

/* until whoever has made a directory has made a child in it */
#define BIRTH (300 * NS_PER_MS)

enum { BATCH = 16 /* children that are looked at side by side */ };

/* A child, and its children. */
struct stranger {
	const char *name;
	struct call *list;
};

static struct call *
ask(const struct turn *t, const char *name)
{
	char path[NODE_BYTES];

	snprintf(path, sizeof path, "%s/%s", t->node->dir->path, name);
	return call_list(t->node->session, path);
}

/* A semaphore's are of the key itself. */
static bool
is_part(const char *name)
{
	return layout_read(layouts, name).what == CHILD_PART;
}

static bool
is_of_a_lock(const char *name)
{
	struct child c;

	return layout_of(name, &c) ||
	    layout_read(layout_named("kazoo"), name).what == CHILD_LEASE;
}

static bool
has_lock_in_it(const struct call *list)
{
	size_t n;
	const char *const *names = call_names(list, &n);

	for (size_t i = 0; i < n; i++)
		if (is_of_a_lock(names[i]))
			return true;
	return false;
}

/* *born: it may have been made just now. */
static bool
is_directory(const struct call *list, bool *born)
{
	const struct Stat *stat = call_stat(list);

	*born = false;
	if (stat_is_ephemeral(stat))
		return false;
	if (stat->numChildren > 0)
		return has_lock_in_it(list);
	*born = !stat_is_directory(stat);
	return !*born;
}

/* We may not see what is in it: is there anything? */
static enum rc
judge_closed(
    const struct turn *t, const char *name, bool *passed, instant until, struct fault *f)
{
	char path[NODE_BYTES];
	struct call *c;
	int code = ZOK;
	enum rc rc;

	snprintf(path, sizeof path, "%s/%s", t->node->dir->path, name);
	c = call_exists(t->node->session, path);
	rc = call_await(c, until, &code, f);
	*passed = rc == RC_OK &&
	    (code == ZNONODE ||
		(!stat_is_ephemeral(call_stat(c)) && stat_is_directory(call_stat(c))));
	call_drop(c);
	return rc;
}

static enum rc
judge(const struct turn *t, struct stranger *s, bool *passed, bool *born, instant until,
    struct fault *f)
{
	int code = ZOK;
	enum rc rc = call_await(s->list, until, &code, f);

	*passed = *born = false;
	if (rc == RC_DENIED)
		return judge_closed(t, s->name, passed, until, f);
	if (rc == RC_OK)
		*passed = code == ZNONODE || is_directory(s->list, born);
	return rc;
}

/* One that may have been made just now is looked at again. */
static enum rc
judge_patiently(const struct turn *t, struct stranger *s, bool *passed, instant until,
    struct fault *f)
{
	struct host *h = t->host;
	bool born;
	enum rc rc = judge(t, s, passed, &born, until, f);

	if (rc != RC_OK || *passed || !born)
		return rc;
	if (h->wait(h, -1, 0, instant_now() + BIRTH) == WOKE_STOP)
		return RC_STOP;
	call_drop(s->list);
	s->list = ask(t, s->name);
	return judge(t, s, passed, &born, until, f);
}

static enum rc
judge_batch(const struct turn *t, struct stranger *s, size_t n, const char **ret,
    instant until, struct fault *f)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; i < n && rc == RC_OK && !*ret; i++) {
		bool passed = false;

		if (s[i].list)
			rc = judge_patiently(t, &s[i], &passed, until, f);
		if (rc == RC_OK && !passed)
			*ret = s[i].name;
	}
	for (size_t i = 0; i < n; i++)
		call_drop(s[i].list);
	return rc;
}

/* What jobs of other locks have done lies beside these. */
static bool
is_in_doubt(const struct queue *q, const char *name)
{
	return queue_is_strange(q->layout, name) && strcmp(name, JOBS) != 0;
}

enum rc
stranger_find(const struct turn *t, const struct queue *q, const char **ret,
    instant until, struct fault *f)
{
	struct stranger batch[BATCH];
	size_t i = 0, n;
	enum rc rc = RC_OK;

	*ret = NULL;
	while (i < q->n && rc == RC_OK && !*ret) {
		for (n = 0; n < BATCH && i < q->n; i++)
			if (is_in_doubt(q, q->names[i]))
				batch[n++] = (struct stranger){q->names[i],
				    is_part(q->names[i]) ||
					    strlen(q->names[i]) >= NAME_BYTES
					? NULL
					: ask(t, q->names[i])};
		rc = judge_batch(t, batch, n, ret, until, f);
	}
	return rc;
}
