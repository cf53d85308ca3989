/* page.c - memory that front, keeper and stub share. */
#include "page.h"

#include "process.h"

#include <sys/mman.h>

/* Where the other members stand in `ending`, beside the value, with four bits for each. */
enum { KIND_AT = 32, LOSS_AT = 36, KEPT_AT = 40, FLAGS_AT = 44, FOUR_BITS = 0xf };

void
page_put_ending(struct page *s, const struct ending *e)
{
	uint64_t flags = e->stuck | e->unconfirmed << 1 | e->too_late << 2 |
	    e->returned << 3;

	atomic_store(&s->end.ending,
	    (uint32_t)e->value | (uint64_t)e->kind << KIND_AT |
		(uint64_t)e->loss << LOSS_AT | (uint64_t)e->kept << KEPT_AT |
		flags << FLAGS_AT);
}

struct ending
page_ending(const struct page *s)
{
	uint64_t bits = atomic_load(&s->end.ending);

	return (struct ending){
	    .value = (int)(uint32_t)bits,
	    .kind = bits >> KIND_AT & FOUR_BITS,
	    .loss = bits >> LOSS_AT & FOUR_BITS,
	    .kept = bits >> KEPT_AT & FOUR_BITS,
	    .stuck = bits >> FLAGS_AT & 1,
	    .unconfirmed = bits >> FLAGS_AT & 2,
	    .too_late = bits >> FLAGS_AT & 4,
	    .returned = bits >> FLAGS_AT & 8,
	};
}

/* Copies what the watch looks at. */
static struct watch_page
page_view(const struct page *s, bool granted)
{
	return (struct watch_page){
	    .granted = granted,
	    .finished = atomic_load(&s->end.finished),
	    .stopping = atomic_load(&s->stopping),
	    .term_at = atomic_load(&s->term_at),
	    .kill_at = atomic_load(&s->kill_at),
	    .alive_at = atomic_load(&s->alive_at),
	};
}

struct watch_due
page_watch(const struct page *s, struct watch *w, bool granted, pid_t keeper)
{
	struct watch_page view = page_view(s, granted);
	struct watch_due due = watch(w, instant_now(), &view);
	bool starves;

	if (due.duty != DUTY_GIVE_UP || keeper == 0)
		return due;
	starves = process_state(keeper) == 'R';
	view = page_view(s, granted); /* it may have had a processor meanwhile */
	if (starves)
		watch_bear(w, instant_now(), &view);
	return watch(w, instant_now(), &view);
}

const char *
page_where(const struct page *s)
{
	return atomic_load(&s->opened) ? s->where : "";
}

struct page *
page_new(void)
{
	struct page *s = mmap(
	    NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (s == MAP_FAILED)
		return NULL;
	atomic_init(&s->term_at, NEVER);
	atomic_init(&s->kill_at, NEVER);
	atomic_init(&s->begin_by, NEVER);
	atomic_init(&s->alive_at, instant_now());
	return s;
}

void
page_free(struct page *s)
{
	munmap(s, sizeof *s);
}
