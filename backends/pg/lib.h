/*
 * lib.h - libpq, when it is needed and not before.
 *
 * Linking it would cost every start of dlock, on whatever backend, 3 to 5 ms
 * (it brings OpenSSL, Kerberos and LDAP along).  So it is loaded (dl.h) when a
 * pg lock is opened, and called through a table: pq->finish(conn) is
 * PQfinish(conn).
 */
#ifndef DLOCK_PG_LIB_H
#define DLOCK_PG_LIB_H

#include "backends/backend.h"

#include <libpq-fe.h>

#define PQ_FUNCTIONS(X) \
	X(backendPID) \
	X(clear) \
	X(connectPoll) \
	X(connectStartParams) \
	X(connectionNeedsPassword) \
	X(conninfo) \
	X(conninfoFree) \
	X(conninfoParse) \
	X(consumeInput) \
	X(db) \
	X(errorMessage) \
	X(finish) \
	X(flush) \
	X(freemem) \
	X(getResult) \
	X(getisnull) \
	X(getlength) \
	X(getvalue) \
	X(host) \
	X(isBusy) \
	X(nfields) \
	X(notifies) \
	X(ntuples) \
	X(parameterStatus) \
	X(pass) \
	X(port) \
	X(resultErrorField) \
	X(resultStatus) \
	X(sendQuery) \
	X(sendQueryParams) \
	X(serverVersion) \
	X(setErrorVerbosity) \
	X(setNoticeReceiver) \
	X(setnonblocking) \
	X(socket) \
	X(status)

/* These came with libpq 14; NULL where it is older. */
#define PQ_PIPELINE_FUNCTIONS(X) \
	X(enterPipelineMode) \
	X(exitPipelineMode) \
	X(pipelineSync)

struct pq {
#define X(name) __typeof__(&PQ##name) name;
	PQ_FUNCTIONS(X)
	PQ_PIPELINE_FUNCTIONS(X)
#undef X
};

/*
 * Gives the table.  RC_CONFIG: libpq.so.5 is not installed, or lacks a function;
 * RC_SYSTEM: it could not be loaded.
 */
enum rc pq_load(const struct pq **ret, struct fault *);

#endif
