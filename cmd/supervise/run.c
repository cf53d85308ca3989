/* run.c - of a run: whom its lock guards, and what signals do to it. */
#include "run.h"

#include <signal.h>

struct outside *
run_guarded(const struct run *r)
{
	return r->body && r->body->outside.pid && run_delivery(r) == DELIVERED &&
		!atomic_load(&r->shared->end.returned)
	    ? &r->body->outside
	    : NULL;
}

enum delivery
run_delivery(const struct run *r)
{
	return r->body ? atomic_load(r->body->delivery) : UNDELIVERED;
}

bool
run_settle(const struct run *r, enum delivery how)
{
	int open = UNDELIVERED;

	return r->body && atomic_compare_exchange_strong(r->body->delivery, &open, how);
}

bool
run_is_stop(int sig)
{
	return sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU || sig == SIGSTOP;
}

bool
run_is_end(int sig)
{
	static const int harmless[] = {
	    SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGTSTP, SIGTTIN, SIGTTOU};
	/* we change none, so what is there is our caller's wish */
	struct sigaction inherited;

	for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
		if (sig == harmless[i])
			return false;
	return sigaction(sig, NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN;
}
