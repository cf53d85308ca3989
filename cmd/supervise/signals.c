/*
 * signals.c - decides what becomes of a signal that one of dlock's processes gets.
 *
 * With a terminal the command is in the front's process group, unless it has made one of its
 * own; without a terminal it leads one.  The keeper is always elsewhere.  So a signal to our
 * group ("all") has reached a command in it; one to the front's pid ("us") has not.  A witness
 * (witness.h) tells these apart.  Where there is none, siginfo tells it of what the kernel
 * sends, but not `kill PID` from `kill -GROUP`: "?".  Then the rule is: rather twice than never.
 *
 *      signal               sent to     who has it already     what dlock does
 *
 * in any state
 * A1   CHLD                 us          nobody else            reaps
 * A2   any, by dlock        us          nobody is meant        nothing: PIPE of its stderr, a wake-up
 * A3   any, over            any         nobody is left         nothing
 *
 * the lock is waited for
 * W1   TSTP TTIN TTOU       any         the waiting stub       gives up its place, is suspended, asks again after CONT
 * W2   the same, no shell   any         nobody: the kernel     nothing
 *      above could continue it          ignores it
 * W3   any that ends        any         nobody                 gives up its place, ends by it: INT TERM HUP, ALRM of
 *                                                              `alarm N; exec dlock`
 * W4   any other            any         nobody                 nothing: CONT WINCH, what the caller ignores
 *
 * the command runs
 * R1   HUP CONT, sent to    all         the command            nothing: loop_suspend_with() has sent it
 *      its own group by us
 * R2   CONT, terminal,      any         the command            nothing: of fg and bg it goes on already
 *      own group, goes on
 * R3   any, own group       any         we alone               passes it on
 * R4   any                  all         the command            nothing: Ctrl-C, Ctrl-Z, the window, fg, bg, kill %1, the
 *                                                              hang-up of a shell, timeout, `kill 0` of a script
 * R5   any                  us          we alone               passes it on: kill PID, from anywhere; a timer; a hang-up where
 *                                                              we lead the session
 * R6   any, by the command  ?           the command            nothing: of `kill 0` it would be told for ever
 * R7   CONT, foreground or  ?           the command (fg, bg)   nothing: it would undo the next Ctrl-Z
 *      it is not suspended
 * R8   any other            ?           perhaps the command    passes it on
 *
 * the command has ended; what it has left, or runs that have joined, are waited for
 * L1   TSTP TTIN TTOU,      any         who is in our group    is suspended with them
 *      terminal
 * L2   the same, no shell   any         nobody                 nothing
 * L3   INT QUIT of a key    all         who is in our group    --signal to all: what a shell starts in the background
 *                                       and does not ignore it ignores such keys
 * L4   any that does not    all         who is in our group    nothing
 *      end, or is ignored
 * L5   any other            all         who is in our group    passes it on to the others
 * L6   CONT, foreground     ?           the same (fg)          nothing
 * L7   any other            us, ?       we alone, perhaps all  passes it on to all
 * L8   that the command had all         who was in our group   nothing, as if all was read in time: the command has ended since,
 *                                                              or died of it within the last second
 * L9   as R1; as R6         any; ?      the command            nothing: it has ended since
 *
 * a hold
 * H1   any that ends        any         nobody                 undelivered: gives it back, ends by it
 * H2   any other            any         nobody                 undelivered: nothing
 * H3   TERM, not passed on  us          nobody                 delivered, for nobody (--for): gives it back
 *      by the asker
 * H4   any other            any         nobody                 delivered: nothing
 *
 * what the asker of a hold gets, which waits for the front (TSTP: cmd/hold.c)
 * S1   any                  all         the front              nothing
 * S2   TERM that our caller us, ?       perhaps the front      nothing: to the front it is the end of our parent
 *      ignores
 * S3   any other            us, ?       perhaps the front      passes it on to the front; the first one counts
 *
 * what the keeper gets: TERM; it ignores all others
 * K1   waited for           us          nobody                 gives up its place, ends by it
 * K2   a hold, undelivered  us          nobody                 gives it back
 *      or for nobody
 * K3   --min-hold           us          nobody                 passes it on: others are shown this pid
 * K4   any other            us          nobody                 nothing; does not keep the lock for --min-hold, nor try on
 *
 * That the command is suspended is no signal to us: front_signals_suspend() follows it.
 */
#include "signals.h"

#include <signal.h>
#include <stddef.h>

bool
signal_suspends(int sig)
{
	return sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU || sig == SIGSTOP;
}

bool
signal_is_end(int sig)
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

/*
 * When a terminal hangs up, the kernel sends HUP, and CONT after it, to the leader of the
 * session alone.  All else that a kernel sends, such as ALRM, is for one process.
 */
enum signal_reach
signal_reach_by_code(int sig, int code, bool leads)
{
	static const int terminals[] = {
	    SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH, SIGHUP, SIGCONT};

	if (code == SI_USER)
		return REACH_UNKNOWN;
	if (code != SI_KERNEL || (leads && (sig == SIGHUP || sig == SIGCONT)))
		return REACH_US;
	for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++)
		if (sig == terminals[i])
			return REACH_GROUP;
	return REACH_US;
}

bool
signal_asks(const struct signal_case *c)
{
	bool counts = c->sig == SIGTERM || c->sig == SIGHUP ||
	    (c->sig == SIGINT && !c->by_key);

	return counts && c->ends && c->sender != FROM_DLOCK;
}

static enum signal_deed
decide_waiting(const struct signal_case *c)
{
	if (signal_suspends(c->sig))
		return c->may_suspend ? DEED_SUSPEND_WAITING /* W1 */
				      : DEED_NOTHING /* W2 */;
	return c->ends ? DEED_END_WAITING /* W3 */ : DEED_NOTHING /* W4 */;
}

static enum signal_deed
decide_running(const struct signal_case *c)
{
	if (c->sent)
		return DEED_NOTHING; /* R1 */
	if (c->apart && c->sig == SIGCONT && c->terminal && !c->suspended)
		return DEED_NOTHING; /* R2 */
	if (c->apart)
		return DEED_PASS_ON; /* R3 */
	if (c->reach != REACH_UNKNOWN)
		return c->reach == REACH_GROUP ? DEED_NOTHING /* R4 */
					       : DEED_PASS_ON /* R5 */;
	if (c->sender == FROM_COMMAND)
		return DEED_NOTHING; /* R6 */
	if (c->sig == SIGCONT && (c->foreground || !c->suspended))
		return DEED_NOTHING; /* R7 */
	return DEED_PASS_ON;         /* R8 */
}

static enum signal_deed
decide_rest(const struct signal_case *c)
{
	if (c->terminal && signal_suspends(c->sig))
		return c->may_suspend ? DEED_SUSPEND /* L1 */ : DEED_NOTHING /* L2 */;
	if (c->had)
		return DEED_NOTHING; /* L8 */
	if (c->sent ||
	    (!c->apart && c->reach == REACH_UNKNOWN && c->sender == FROM_COMMAND))
		return DEED_NOTHING; /* L9 */
	if (c->by_key && c->ends)
		return DEED_END_REST; /* L3 */
	if (c->reach == REACH_GROUP)
		return c->ends ? DEED_PASS_ON_OUTSIDE /* L5 */ : DEED_NOTHING /* L4 */;
	if (c->reach == REACH_UNKNOWN && c->sig == SIGCONT && c->foreground)
		return DEED_NOTHING; /* L6 */
	return DEED_PASS_ON;         /* L7 */
}

static enum signal_deed
decide_hold(const struct signal_case *c)
{
	/* may_suspend: the front took it for a suspension of the waiting, and has withdrawn the hold */
	if (c->state == SIGNAL_UNDELIVERED)
		return c->ends || c->may_suspend ? DEED_END_HOLD /* H1 */
						 : DEED_NOTHING /* H2 */;
	return c->sig == SIGTERM && c->sender != FROM_ASKER && c->for_nobody
	    ? DEED_END_HOLD /* H3 */
	    : DEED_NOTHING /* H4 */;
}

static enum signal_deed
decide_for_asker(const struct signal_case *c)
{
	if (c->reach == REACH_GROUP)
		return DEED_NOTHING; /* S1 */
	if (c->sig == SIGTERM && !c->ends)
		return DEED_NOTHING; /* S2 */
	return DEED_PASS_ON;         /* S3 */
}

static enum signal_deed
decide_for_keeper(const struct signal_case *c)
{
	switch (c->state) {
	case SIGNAL_WAITS:
		return DEED_END_WAITING; /* K1 */
	case SIGNAL_UNDELIVERED:
		return DEED_END_HOLD; /* K2 */
	case SIGNAL_DELIVERED:
		return c->for_nobody ? DEED_END_HOLD /* K2 */ : DEED_NOTHING /* K4 */;
	case SIGNAL_RUNS:
	case SIGNAL_RESTS:
		return c->min_hold ? DEED_PASS_ON /* K3 */ : DEED_NOTHING /* K4 */;
	case SIGNAL_OVER:
		break;
	}
	return DEED_NOTHING;
}

enum signal_deed
signal_decide(const struct signal_case *c)
{
	if (c->sig == SIGCHLD)
		return DEED_REAP; /* A1 */
	if (c->sender == FROM_DLOCK)
		return DEED_NOTHING; /* A2 */
	if (c->getter == BY_ASKER)
		return decide_for_asker(c);
	if (c->getter == BY_KEEPER)
		return decide_for_keeper(c);
	switch (c->state) {
	case SIGNAL_WAITS:
		return decide_waiting(c);
	case SIGNAL_RUNS:
		return decide_running(c);
	case SIGNAL_RESTS:
		return decide_rest(c);
	case SIGNAL_UNDELIVERED:
	case SIGNAL_DELIVERED:
		return decide_hold(c);
	case SIGNAL_OVER:
		break;
	}
	return DEED_NOTHING; /* A3 */
}
