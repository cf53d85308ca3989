/* state.c - what each event makes of each state. */
#include "state.h"

/* What is not here stays what it is. */
#define TO(state) (STATE_##state + 1)

static const unsigned char next[STATES][EVENTS] = {
    [STATE_NONE] = {[EVENT_MAY_BE_MADE] = TO(UNSURE), [EVENT_MADE] = TO(JOINED)},
    [STATE_UNSURE] =
	{[EVENT_NOT_MADE] = TO(NONE), [EVENT_MADE] = TO(JOINED), [EVENT_GONE] = TO(NONE)},
    [STATE_JOINED] = {[EVENT_SEEN] = TO(PLACED),
	[EVENT_GRANTED] = TO(HELD),
	[EVENT_NO_ANSWER] = TO(LEAVING),
	[EVENT_LOST] = TO(UNSURE),
	[EVENT_GONE] = TO(NONE)},
    [STATE_PLACED] = {[EVENT_WATCHED] = TO(WATCHING),
	[EVENT_LIST_ANEW] = TO(JOINED),
	[EVENT_GRANTED] = TO(HELD),
	[EVENT_NO_ANSWER] = TO(LEAVING),
	[EVENT_LOST] = TO(UNSURE),
	[EVENT_GONE] = TO(NONE)},
    [STATE_WATCHING] = {[EVENT_LIST_ANEW] = TO(JOINED),
	[EVENT_GRANTED] = TO(HELD),
	[EVENT_NO_ANSWER] = TO(LEAVING),
	[EVENT_LOST] = TO(UNSURE),
	[EVENT_GONE] = TO(NONE)},
    [STATE_HELD] = {[EVENT_NO_ANSWER] = TO(GIVING),
	[EVENT_LOST] = TO(UNSURE),
	[EVENT_GONE] = TO(NONE)},
    [STATE_LEAVING] = {[EVENT_LOST] = TO(UNSURE), [EVENT_GONE] = TO(NONE)},
    [STATE_GIVING] = {[EVENT_LOST] = TO(UNSURE), [EVENT_GONE] = TO(NONE)},
};

enum state
state_next(enum state s, enum event e)
{
	return next[s][e] ? (enum state)(next[s][e] - 1) : s;
}

bool
state_is_holders(enum state s)
{
	return s == STATE_HELD || s == STATE_GIVING;
}

bool
state_is_ending(enum state s)
{
	return s == STATE_LEAVING || s == STATE_GIVING;
}
