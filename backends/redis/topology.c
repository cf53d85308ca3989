/* topology.c - finds the server that has the locks. */
#include "topology.h"

#include <string.h>

void
topology_init(
    struct topology *t, struct host *host, const struct address *a, const char *password)
{
	*t = (struct topology){
	    .host = host, .address = a, .password = password, .at = a->hosts[0]};
	address_print(a, t->where, sizeof t->where);
	t->found = a->form == FORM_SINGLE;
}

void
topology_free(struct topology *t)
{
	sentinels_free(t->sentinels);
	free(t->nodes);
	t->sentinels = NULL;
	t->nodes = NULL;
}

static void
topology_go(struct topology *t, const struct endpoint *to)
{
	if (t->moves == 0 || !endpoint_is(&t->at, to)) {
		t->at = *to;
		t->moves++;
		t->trusted = false;
		address_print_host(to, t->where, sizeof t->where);
	}
	t->found = true;
}

static enum rc
find_by_sentinels(struct topology *t, instant until, struct fault *f)
{
	struct endpoint master;
	enum rc rc;

	if (!t->sentinels)
		t->sentinels = sentinels_new(t->host, t->address, t->password);
	if (!t->sentinels)
		return fault_set(f, RC_SYSTEM, "out of memory");
	rc = sentinels_ask(t->sentinels, until, &master, f);
	if (rc == RC_OK)
		topology_go(t, &master);
	return rc;
}

static enum rc
find_node(struct topology *t, struct fault *f)
{
	if (!t->nodes) {
		t->nodes = calloc(NODES, sizeof *t->nodes);
		if (!t->nodes)
			return fault_set(f, RC_SYSTEM, "out of memory");
		t->known = t->address->n;
		memcpy(t->nodes, t->address->hosts, t->known * sizeof *t->nodes);
	}
	topology_go(t, &t->nodes[t->turn % t->known]);
	return RC_OK;
}

enum rc
topology_find(struct topology *t, instant until, struct fault *f)
{
	if (t->found)
		return RC_OK;
	return t->address->form == FORM_SENTINEL ? find_by_sentinels(t, until, f)
						 : find_node(t, f);
}

void
topology_trust(struct topology *t)
{
	t->trusted = true;
}

void
topology_doubt(struct topology *t)
{
	t->found = t->address->form == FORM_SINGLE;
	t->trusted = false;
	t->turn++;
}

bool
topology_redirection(const struct topology *t, const char *text, struct endpoint *to)
{
	const char *slot = strchr(text, ' '),
		   *place = slot ? strchr(slot + 1, ' ') : NULL,
		   *colon = place ? strrchr(place, ':') : NULL;
	size_t n;

	if (!colon)
		return false;
	n = colon - ++place;
	if (n > 0)
		return !endpoint_plain(to, place, n, colon + 1, strlen(colon + 1));
	return !endpoint_plain(
	    to, t->at.host, strlen(t->at.host), colon + 1, strlen(colon + 1));
}

/* Where it stands among the nodes; the last one is replaced where they are too many. */
static size_t
remember(struct topology *t, const struct endpoint *node)
{
	for (size_t i = 0; i < t->known; i++)
		if (endpoint_is(&t->nodes[i], node))
			return i;
	if (t->known < NODES)
		t->known++;
	t->nodes[t->known - 1] = *node;
	return t->known - 1;
}

void
topology_moved(struct topology *t, const struct endpoint *to)
{
	t->turn = remember(t, to);
	topology_go(t, to);
}
