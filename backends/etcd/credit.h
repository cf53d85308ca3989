/*
 * credit.h - for how long a lease of etcd is ours, after a keep-alive that was answered.
 *
 * A keep-alive alone proves nothing: a leader whose disk stalls goes on answering it long
 * after another leader has deleted the key.  So a renewal is three requests to one member, each
 * begun after the one before was answered (they are pipelined on one connection): P, a
 * linearizable read; K, the keep-alive; and Q, a linearizable read of our key.  P was sent at
 * t, and T is the lease's length.
 *
 * Claim: if P was answered, K says that the lease lives, and Q shows our key, the key stays until
 * t + T at least.
 *
 *  1. A linearizable read is confirmed by a majority for the leader of some term, who is the
 *     last one elected at that moment (ReadIndex): of term A for P, and B for Q.  The member
 *     has reached that term when it answers.
 *  2. The member passes K to the leader that it knows (or is it), of a term S.  It knows no
 *     older one than that of A (1), so S is at least A.
 *  3. A leader of a term before B can commit nothing any more once Q was confirmed.  Q shows the
 *     key, so it is the leader of B, or of a later term, who may delete it.
 *  4. A new leader gives each lease its whole length from its own beginning (lessor.Promote).  So
 *     one who was elected after t deletes the key at t + T at the earliest.  Those of terms after
 *     B were elected after Q was confirmed, which is after t.
 *  5. So was the leader of B, unless A is B: A was the last one after t.
 *  6. If A is B, S is B: a later one was elected after Q was confirmed, but K had been answered
 *     before Q was begun.  So that very leader renewed the lease, after t.
 *
 * The member is the same if all three answers say so (member_id); a proxy may have several.
 *
 * The grant of a lease is a raft entry: one that was granted anew by a request sent at t, before
 * Q, lasts until t + T.  (Q is a write to our key then, and B the term of its entry.)  If the
 * leader of B was elected before t it has made the grant's entry itself, for nobody else could;
 * otherwise 4 holds.
 *
 * A waiter proves the lease of a hold to come in the same way, while no key is on it; Q is any
 * linearizable read then, and 3 to 6 speak of the lease.  The key that is put with it later goes
 * with it, and cannot be put once it is gone.  Q does not show the lease, so it may be gone
 * already: the leader of A revoked it after t, and a new leader answered K before it had applied
 * that.  Then the put fails, unless a grant of ours that arrived late has made the lease anew:
 * behind the revoke, so later than t, and at its whole length.
 *
 * Two requests, K and Q, whose headers say the same raft_term, would nearly do.  But that term is
 * the one of the last entry that was applied, and is not set by a snapshot: of a member that lags
 * behind, and gets one between K and Q, both say the same old term, though K was answered by a
 * leader of before.  tests/unit/etcd.c simulates both rules.
 *
 * Where this fails: in 3.4.0 to 3.4.30 and 3.5.0 to 3.5.12 an old leader that wakes up may have
 * the new one revoke leases (etcd #12528).  No rule for clients helps.  The key is watched, so
 * the loss is noticed at once; -v names such a server.  Remaining times that a leader has written
 * down (--experimental-enable-lease-checkpoint) are cleared, by an entry, before a keep-alive is
 * answered: 4 holds.
 *
 * Pure: facts in, a decision out.
 */
#ifndef DLOCK_ETCD_CREDIT_H
#define DLOCK_ETCD_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

/* What the answers to P, K and Q say. */
struct credit {
	int64_t member[3]; /* who has answered; 0: nobody */
	int64_t ttl;       /* by K, s; 0: the lease is gone */
	bool ours;         /* by Q */
};

static inline bool
credit_proves(const struct credit *c)
{
	return c->ttl > 0 && c->ours && c->member[0] && c->member[0] == c->member[1] &&
	    c->member[1] == c->member[2];
}

#endif
