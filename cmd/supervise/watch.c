/* watch.c - decides whether the keeper is late, and what the front does about it. */
#include "watch.h"

/* A duty, and when it is due.  The first of several that are due counts. */
struct timer {
	instant at;
	enum duty duty;
};

enum { TIMERS = 6 };

void
watch_init(struct watch *w, int64_t ttl, int64_t grace)
{
	*w = (struct watch){
	    .ttl = ttl,
	    .grace = grace,
	    .interrupt_by = NEVER,
	    .release_by = NEVER,
	    .doubt_by = NEVER,
	    .adrift_by = NEVER,
	};
}

void
watch_interrupted(struct watch *w, instant now)
{
	w->interrupt_by = instant_first(w->interrupt_by, now + INTERRUPT_PATIENCE);
}

void
watch_adrift(struct watch *w, instant now)
{
	w->adrift_by = instant_first(w->adrift_by, now + ANCHOR_PATIENCE);
}

/*
 * A patience that begins when we see at `from` or later that it is needed: we
 * may have slept as long as the keeper.  Returns when to look: for its
 * beginning, or its end.
 */
static instant
time_patience(instant *by, instant now, instant from, int64_t length)
{
	if (now < from)
		*by = NEVER;
	else if (*by == NEVER)
		*by = now + length;
	return now < from ? from : *by;
}

/*
 * A kernel lock has no deadline that would end with a frozen keeper, a place in
 * a queue neither; hence GIVE_UP.  An interrupt that came after the grant is
 * the command's.
 */
static void
set_timers(struct timer *t, struct watch *w, instant now, const struct watch_page *v)
{
	bool runs = v->granted && !v->finished;
	instant kill_at = instant_after(v->kill_at, SLACK),
		term_at = instant_after(v->term_at, SLACK);

	if (v->granted)
		w->interrupt_by = NEVER;
	t[0] = (struct timer){w->interrupt_by, DUTY_INTERRUPT};
	t[1] = (struct timer){v->finished ? NEVER : w->adrift_by, DUTY_ADRIFT};
	t[2] = (struct timer){time_patience(&w->release_by, now,
				  v->finished ? kill_at : NEVER, KEEPER_PATIENCE),
	    DUTY_GIVE_UP};
	t[3] = (struct timer){
	    time_patience(&w->doubt_by, now, instant_after(v->alive_at, w->ttl), DOUBT),
	    DUTY_GIVE_UP};
	if (w->doubt_by == NEVER)
		w->borne = 0;
	t[4] = (struct timer){runs ? kill_at : NEVER, DUTY_KILL};
	t[5] = (struct timer){runs && !v->stopping ? term_at : NEVER, DUTY_TERM};
}

struct watch_due
watch(struct watch *w, instant now, const struct watch_page *v)
{
	struct watch_due result = {.wake = NEVER};
	struct timer timers[TIMERS];
	instant kill_at;

	/*
	 * Before the grant no deadline can fall due earlier than one of a lease that is
	 * asked for just now; the page is looked at again by then.
	 */
	if (!v->granted)
		lease_deadlines(now, w->ttl, w->grace, &result.wake, &kill_at);
	set_timers(timers, w, now, v);
	for (int i = 0; i < TIMERS; i++) {
		if (now >= timers[i].at && result.duty == DUTY_NONE)
			result.duty = timers[i].duty;
		else
			result.wake = instant_first(result.wake, timers[i].at);
	}
	return result;
}

void
watch_bear(struct watch *w, instant now, const struct watch_page *v)
{
	if (v->finished || w->borne == BORNE_MOST)
		return;
	w->borne++;
	w->doubt_by = now + DOUBT;
}
