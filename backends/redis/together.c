/* together.c - calls that wait, side by side on one thread. */
#include "together.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

/* A page is taken when it is touched; the lowest one never may be. */
enum { STACK_BYTES = 256 * 1024, GUARD_BYTES = 16 * 1024, EVENTS = 16 };

struct strand {
	struct host host; /* the first member: strand_wait() is given no more */
	struct together *of;
	ucontext_t here, caller;
	char *stack;
	void (*run)(void *);
	void *arg;
	bool busy;
	int fd; /* what it waits for; -1: nothing but the time */
	instant until;
	enum woke woke;
};

/* Until it waits or has ended. */
static void
strand_go_on(struct strand *s, enum woke woke)
{
	s->woke = woke;
	swapcontext(&s->caller, &s->here);
}

static bool
strand_watch(struct strand *s, int fd, short events)
{
	/* EPOLLIN and EPOLLOUT are POLLIN and POLLOUT */
	struct epoll_event e = {.events = events, .data.ptr = s};

	return epoll_ctl(s->of->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

static enum woke
strand_wait(struct host *h, int fd, short events, instant until)
{
	struct strand *s = (struct strand *)h;

	if (fd >= 0 && !strand_watch(s, fd, events))
		return WOKE_TIMEOUT;
	s->fd = fd;
	s->until = until;
	swapcontext(&s->here, &s->caller);
	if (fd >= 0)
		epoll_ctl(s->of->epoll, EPOLL_CTL_DEL, fd, NULL);
	return s->woke;
}

/* makecontext(3) hands over ints only. */
static void
strand_main(unsigned high, unsigned low)
{
	struct strand *s = (struct strand *)((uintptr_t)high << 16 << 16 | low);

	s->run(s->arg);
	s->busy = false;
}

enum rc
together_begin(struct together *t, struct host *host, size_t n, struct fault *f)
{
	*t = (struct together){.host = host, .epoll = epoll_create1(EPOLL_CLOEXEC)};
	t->strands = calloc(n, sizeof *t->strands);
	if (t->epoll < 0 || !t->strands)
		return fault_set(f, RC_SYSTEM, "no descriptor, or no memory, is left");
	for (; t->n < n; t->n++) {
		struct strand *s = &t->strands[t->n];

		s->host = (struct host){
		    .wait = strand_wait, .alert = -1, .verbose = host->verbose};
		s->of = t;
		s->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
		if (s->stack == MAP_FAILED)
			return fault_set(f, RC_SYSTEM, "out of memory");
		mprotect(s->stack, GUARD_BYTES, PROT_NONE);
	}
	return RC_OK;
}

struct host *
together_host(struct together *t, size_t i)
{
	return &t->strands[i].host;
}

void
together_start(struct together *t, size_t i, void (*run)(void *), void *arg)
{
	struct strand *s = &t->strands[i];

	s->run = run;
	s->arg = arg;
	s->busy = true;
	getcontext(&s->here);
	s->here.uc_stack.ss_sp = s->stack;
	s->here.uc_stack.ss_size = STACK_BYTES;
	s->here.uc_link = &s->caller;
	makecontext(&s->here, (void (*)(void))strand_main, 2,
	    (unsigned)((uintptr_t)s >> 16 >> 16), (unsigned)(uintptr_t)s);
	strand_go_on(s, WOKE_READY);
}

bool
together_is_busy(const struct together *t, size_t i)
{
	return t->strands[i].busy;
}

void
together_cut(struct together *t, size_t i)
{
	if (t->strands[i].busy)
		strand_go_on(&t->strands[i], WOKE_TIMEOUT);
}

void
together_stop(struct together *t)
{
	for (size_t i = 0; i < t->n; i++)
		while (t->strands[i].busy)
			strand_go_on(&t->strands[i], WOKE_STOP);
}

static instant
together_due(const struct together *t, instant until)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->strands[i].busy)
			until = instant_first(until, t->strands[i].until);
	return until;
}

static void
together_run_ready(struct together *t)
{
	struct epoll_event ready[EVENTS];
	int n = epoll_wait(t->epoll, ready, EVENTS, 0);

	for (int i = 0; i < n; i++)
		strand_go_on(ready[i].data.ptr, WOKE_READY);
}

enum woke
together_wait(struct together *t, instant until)
{
	instant now;

	if (t->host->wait(t->host, t->epoll, POLLIN, together_due(t, until)) ==
	    WOKE_STOP) {
		together_stop(t);
		return WOKE_STOP;
	}
	together_run_ready(t);
	now = instant_now();
	for (size_t i = 0; i < t->n; i++)
		if (t->strands[i].busy && t->strands[i].until <= now)
			strand_go_on(&t->strands[i], WOKE_TIMEOUT);
	return now >= until ? WOKE_TIMEOUT : WOKE_READY;
}

void
together_end(struct together *t)
{
	together_stop(t);
	for (size_t i = 0; i < t->n; i++)
		munmap(t->strands[i].stack, STACK_BYTES);
	free(t->strands);
	if (t->epoll >= 0)
		close(t->epoll);
	t->strands = NULL;
	t->n = 0;
	t->epoll = -1;
}
