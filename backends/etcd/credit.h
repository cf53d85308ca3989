/*
 * credit.h - for how long a lease of etcd is ours, after a keep-alive that was answered.
 *
 * A keep-alive alone proves nothing: a leader whose disk stalls goes on answering it long
 * after another leader has deleted the key.  So a renewal is two requests on one
 * connection, the second begun after the first was answered (HTTP pipelining): K, the
 * keep-alive, and Q, a linearizable read of our key (or a write to it).  The renewal was
 * sent at t, and T is the lease's length.
 *
 * Claim: if K says that the lease lives, Q shows our key, and both headers have the same
 * raft_term, the key stays until t + T at least.
 *
 *  1. A header's raft_term is the term of the entry that the member has applied last.  For
 *     K it is read before the keep-alive is passed to a leader (LeaseKeepAlive: "create
 *     header before we sent out the renew request").
 *  2. Q was confirmed by a majority for the leader of some term C, after t.  That leader
 *     has committed an entry of its own term, and the member has applied it before it
 *     answered.  So Q's header says C or more.
 *  3. Both headers say the same term S, and S is at least C (2).  When K was passed on, the
 *     member had applied an entry of S (1), so it knew no older leader: K was renewed, after
 *     t, by a leader of term S or a later one.
 *  4. A leader of a term after C was elected after Q was confirmed, and so after t: until
 *     then the majority followed C.  A new leader gives each lease its whole length from
 *     its own beginning (lessor.Promote): t + T or later.
 *  5. The leader of C itself: K was renewed by a leader of S, which is C or later.  A later
 *     one had begun before K was answered, which was before Q was confirmed; that
 *     contradicts 4.  So K was renewed by C, after t: it keeps the key until t + T.
 *  6. A leader of a term before C can commit nothing any more.
 *
 * Where this fails:
 *  - A member that was just brought up to date by a snapshot tells an older term than that
 *    of what it has applied, which breaks 2.  So a term below one that we have seen counts
 *    for nothing.
 *  - In 3.4.0 to 3.4.30 and 3.5.0 to 3.5.12 an old leader that wakes up may have the new one
 *    revoke leases (etcd #12528).  No rule for clients helps.  The key is watched, so the
 *    loss is noticed at once; -v names such a server.
 *  - Remaining times that a leader has written down (--experimental-enable-lease-checkpoint)
 *    are cleared, by an entry, before a keep-alive is answered: 4 holds.
 *
 * The grant of a lease is a raft entry itself: a lease that is granted anew by a request
 * sent at t lasts until t + T, by 4 and 6 alone.
 *
 * Pure: terms in, a decision out.
 */
#ifndef DLOCK_ETCD_CREDIT_H
#define DLOCK_ETCD_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

struct credit {
	int64_t term; /* the highest that was seen; 0: none */
};

/*
 * K and Q have been answered with these terms: do they prove the lease?  If not, both are to
 * be asked again.
 */
static inline bool
credit_proves(struct credit *c, int64_t keepalive, int64_t read)
{
	bool falls = keepalive < c->term || read < c->term;

	if (keepalive > c->term)
		c->term = keepalive;
	if (read > c->term)
		c->term = read;
	return !falls && keepalive > 0 && keepalive == read;
}

#endif
