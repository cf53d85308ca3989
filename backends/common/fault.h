/*
 * fault.h - the rc of a call, and the sentence that says why it has failed.
 */
#ifndef DLOCK_FAULT_H
#define DLOCK_FAULT_H

/* Each but RC_OK comes with a text in struct fault. */
enum rc {
	RC_OK,   /* done, outputs are set */
	RC_BUSY, /* `until` passed (or no waiting was wanted): another has it */
	/* acquire: this job has been done, see struct job; nothing is held */
	RC_DONE,
	RC_STOP,     /* host->wait told us to stop waiting */
	RC_AGAIN,    /* no usable answer; nothing is known; may be asked again */
	RC_LOST,     /* the server's word: this owner does not hold it */
	RC_REVOKED,  /* renewed, but somebody entitled to it asks for the lock back */
	RC_DENIED,   /* who we are is not known, or not allowed this */
	RC_USAGE,    /* the URL or a setting makes no sense */
	RC_CONFIG,   /* the server is not one on which this lock can be safe */
	RC_PROTOCOL, /* the other side, or a lock on this key, speaks another language */
	RC_SYSTEM,   /* this machine refused: descriptors, memory, disk */
};

/* One sentence for a person, no newline, no "dlock:", never a password. */
struct fault {
	char text[640];
};

/* Writes the sentence and returns the rc: return fault_set(f, RC_AGAIN, "...", ...). */
enum rc fault_set(struct fault *, enum rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__ /* it looks into one file at a time: which rc comes back */
#define fault_set(f, rc, ...) ((fault_set)(f, rc, __VA_ARGS__), (rc))
#endif

/*
 * Writes "WHERE WHAT", such as "redis 10.0.0.5:6379 does not answer", without stdio.  A backend
 * calls it where every run writes a sentence before it asks, and seldom says it: stdio would cost
 * such a run four page faults.
 */
enum rc fault_of(struct fault *, enum rc, const char *where, const char *what);

/* An rc in words, for a trace. */
const char *fault_rc_name(enum rc);

#endif
