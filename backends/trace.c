/*
 * trace.c - a store that says what it does and passes it on (-v).
 *
 * Because this stands between the keeper and any backend, backends contain no
 * logging at all.
 */
#include "backend.h"

#include "common/setting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct trace {
	struct store base;
	struct store *inner;
	const char *key; /* one of several; NULL */
	void (*tell)(void *ctx, const char *line);
	void *ctx;
};

static const struct backend trace_backend;

static struct trace *
trace_of(struct store *s)
{
	return (struct trace *)store_of(s, &trace_backend);
}

/* `end` is when the lease ends, 0 for calls that earn none. */
static enum rc
told(struct trace *t, const char *call, instant began, enum rc rc, instant end,
    const struct fault *f)
{
	instant now = instant_now();
	char line[1024], lease[64] = "";

	if (end == NEVER)
		snprintf(lease, sizeof lease, ", kept until this process ends");
	else if (end)
		snprintf(lease, sizeof lease, ", lease for %.3f s",
		    (double)(end - now) / NS_PER_S);
	snprintf(line, sizeof line, "%s: %s%s%.100s: %s in %.3f ms%s%s%s", t->base.where,
	    call, t->key ? " " : "", t->key ? t->key : "", rc_name(rc),
	    (double)(now - began) / NS_PER_MS, lease, rc == RC_OK ? "" : ": ",
	    rc == RC_OK ? "" : f->text);
	t->tell(t->ctx, line);
	return rc;
}

static enum rc
trace_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct trace *t = trace_of(s);
	instant began = instant_now();
	enum rc rc = t->inner->backend->lock->acquire(t->inner, claim, until, g, f);

	return told(t, "acquire", began, rc,
	    rc == RC_OK ? instant_after(g->sent, g->lease) : 0, f);
}

static enum rc
trace_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct trace *t = trace_of(s);
	instant began = instant_now();
	enum rc rc = t->inner->backend->lock->renew(t->inner, until, g, f);

	return told(t, "renew", began, rc,
	    rc == RC_OK || rc == RC_REVOKED ? instant_after(g->sent, g->lease) : 0, f);
}

static enum rc
trace_release(struct store *s, int status, instant until, struct fault *f)
{
	struct trace *t = trace_of(s);
	instant began = instant_now();

	return told(t, "release", began,
	    t->inner->backend->lock->release(t->inner, status, until, f), 0, f);
}

static enum rc
trace_identify(struct store *s, struct identity *id, struct fault *f)
{
	return identity_of(trace_of(s)->inner, id, f);
}

static void
trace_close(struct store *s)
{
	struct trace *t = s ? trace_of(s) : NULL;

	if (!t)
		return;
	t->inner->backend->close(t->inner);
	free(t);
}

static const struct backend trace_backend = {
    .name = "trace",
    .close = trace_close,
    .identify = trace_identify,
    .lock = &(const struct lock_ops){trace_acquire, trace_renew, trace_release},
};

struct store *
trace_wrap(struct store *inner, const char *key,
    void (*tell)(void *ctx, const char *line), void *ctx)
{
	struct trace *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	*t = (struct trace){
	    .base = *inner,
	    .inner = inner,
	    .key = key,
	    .tell = tell,
	    .ctx = ctx,
	};
	t->base.backend = &trace_backend;
	return &t->base;
}
