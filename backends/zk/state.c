/* state.c - what each event makes of each state. */
#include "state.h"

#define SAME (-1)

/* In the order of enum event; 0 is STATE_NONE. */
static const signed char next[STATES][EVENTS] = {
    [STATE_NONE] = {STATE_UNSURE, SAME, STATE_JOINED, SAME, SAME, SAME, SAME, SAME, SAME,
	SAME},
    [STATE_UNSURE] = {SAME, STATE_NONE, STATE_JOINED, SAME, SAME, SAME, SAME, SAME, SAME,
	STATE_NONE},
    [STATE_JOINED] = {SAME, SAME, SAME, STATE_PLACED, SAME, SAME, STATE_HELD,
	STATE_LEAVING, STATE_UNSURE, STATE_NONE},
    [STATE_PLACED] = {SAME, SAME, SAME, SAME, STATE_WATCHING, SAME, STATE_HELD,
	STATE_LEAVING, STATE_UNSURE, STATE_NONE},
    [STATE_WATCHING] = {SAME, SAME, SAME, STATE_PLACED, SAME, STATE_PLACED, STATE_HELD,
	STATE_LEAVING, STATE_UNSURE, STATE_NONE},
    [STATE_HELD] = {SAME, SAME, SAME, SAME, SAME, SAME, SAME, STATE_GIVING, STATE_UNSURE,
	STATE_NONE},
    [STATE_LEAVING] = {SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, STATE_UNSURE,
	STATE_NONE},
    [STATE_GIVING] = {SAME, SAME, SAME, SAME, SAME, SAME, SAME, SAME, STATE_UNSURE,
	STATE_NONE},
};

enum state
state_next(enum state s, enum event e)
{
	return next[s][e] == SAME ? s : (enum state)next[s][e];
}

bool
state_has_place(enum state s)
{
	return s == STATE_PLACED || s == STATE_WATCHING;
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
