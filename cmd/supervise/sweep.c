/*
 * sweep.c - one pass through all that /proc shows.
 *
 *	signal_first()       the command and the outsider get the signal, for which no look is needed
 *	look_for_outsider()  sees who the outsider is, and which of its neighbours are dlock's own
 *	sweep_all()          reads one process after the other; one that is seen to be ours gets the
 *	                     signal at once, the others get it when all have been read (climb)
 *	signal_children()    signals children of ours that the look has not found
 *	sweep_keep()         keeps those that were ours known, for the looks that come
 */
#include "sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Earlier looks have seen these below us; an outsider has a list of its own. */
static struct processes below;

static int64_t took; /* the last look */

struct processes *
sweep_known(struct outsider *o)
{
	return o ? &o->known : &below;
}

int64_t
sweep_took(void)
{
	return took;
}

/* ---- who is ours ---- */

/* This process and the front may be below the one outside, but are none of its own. */
static void
look_for_outsider(struct sweep *s)
{
	struct outsider *o = s->aim.outsider;
	struct process self = {.pid = process_self()}, front, root, *adopted = &self;
	struct process leader = {.pid = o->group};

	if (o->group && process_look_up(&leader) && leader.born != o->born)
		o->group = 0; /* the number is another's by now */
	s->blind = !self.pid || !process_look_up(&self);
	front.pid = o->front == getpid() ? self.pid : process_number(o->front);
	if (front.pid && process_look_up(&front))
		adopted = &front;
	s->adopter = adopted->parent;
	s->own[0] = self;
	s->own[1] = *adopted;
	s->but = (struct processes){.n = 2, .at = s->own};
	process_sort(&s->but);
	root.pid = s->outsider = outsider_has_ended(o) ? 0 : process_number(o->pid);
	if (root.pid && process_look_up(&root))
		outsider_note_group(o, &root);
}

static enum mark
mark_by_itself(const struct sweep *s, const struct process *p)
{
	const struct outsider *o = s->aim.outsider;

	if (process_is_among(s->aim.spared, p) || process_is_among(&s->but, p))
		return MARK_FOREIGN;
	if (s->root && p->parent == s->root)
		return MARK_OURS;
	if (o && (p->pid == s->outsider || outsider_has_orphan(o, p, s->adopter)))
		return MARK_OURS;
	if (!process_is_among(s->known, p))
		return MARK_OPEN;
	if (!o || !process_is_hold(p))
		return MARK_OURS;
	/* it was one of ours, and may have been halted as such; it is another lock's by now */
	aim_at(p, &(struct aim){.sig = SIGCONT});
	return MARK_OPEN;
}

/* The command, and its group if it leads one, has got its signal; these may get it twice. */
static bool
has_had_it(const struct sweep *s, const struct process *p)
{
	if (s->aim.sig == SIGSTOP || s->aim.sig == SIGKILL)
		return false;
	return (s->had && p->group == s->had) ||
	    (s->command &&
		(p->pid == s->command || (s->aim.leads && p->group == s->command)));
}

/* Was it started because of the signal, by the trap of a script, say? */
static bool
is_answer(const struct sweep *s, const struct process *p)
{
	return s->answers && p->born >= s->answers && !process_is_among(s->known, p);
}

/* Counts a process that is ours, and signals it. */
static void
meet(struct sweep *s, struct process *p)
{
	bool halted = p->state == 'T' || p->state == 't';

	p->met = true;
	if (process_is_dead(p))
		return;
	if (p->pid == s->outsider) { /* it is counted, and has been signalled */
		s->moves |= !halted && !s->spares_outsider;
		return;
	}
	s->alive++; /* also if it has died since: it may have started another */
	s->fresh |= !process_is_among(s->known, p);
	if (aim_leaves(p, &s->aim)) {
		aim_at(p, &(struct aim){.sig = SIGCONT});
		return;
	}
	s->moves |= !halted;
	if (s->aim.sig && !has_had_it(s, p) && !is_answer(s, p) &&
	    !(p->state == 'T' && s->aim.sig == SIGSTOP))
		aim_at(p, &s->aim);
}

/* Signals it at once if it can be told, as mostly, that it is ours. */
static void
take_in(struct sweep *s, struct process *p)
{
	const struct process *parent;

	s->sorted = s->sorted && (s->all.n == 0 || s->all.at[s->all.n - 1].pid < p->pid);
	p->mark = mark_by_itself(s, p);
	parent = p->mark == MARK_OPEN && s->sorted ? process_find(&s->all, p->parent)
						   : NULL;
	if (parent)
		p->mark = parent->mark;
	if (p->mark == MARK_OURS)
		meet(s, p);
	s->cut |= !process_add(&s->all, p);
}

/* ---- all that /proc shows ---- */

/* The next numbers from /proc, as getdents64(2) does; no descriptor stays open. */
static ssize_t
list_numbers(off64_t *at, char *entries, size_t size)
{
	int dir = process_open_file("/proc", O_DIRECTORY);
	off64_t from = *at;
	ssize_t n = -1;

	if (dir >= 0 && lseek64(dir, from, SEEK_SET) == from)
		n = getdents64(dir, (void *)entries, size);
	if (dir >= 0)
		close(dir);
	for (ssize_t i = 0; i < n;) {
		const struct dirent64 *entry = (const void *)(entries + i);

		*at = entry->d_off;
		i += entry->d_reclen;
	}
	return n > 0 && *at == from ? -1 : n;
}

/* Takes those that /proc shows from one number to before another, one file after the other. */
static void
read_processes(struct sweep *s, pid_t from, pid_t to)
{
	_Alignas(struct dirent64) char entries[8192];
	off64_t at = 0;
	ssize_t size = -1;

	while (!s->blind && (size = list_numbers(&at, entries, sizeof entries)) > 0)
		for (ssize_t i = 0; i < size;) {
			const struct dirent64 *entry = (const void *)(entries + i);
			struct process p = {.pid = atoi(entry->d_name)};

			i += entry->d_reclen;
			if (p.pid < from || p.pid >= to)
				continue;
			errno = 0;
			if (process_look_up(&p))
				take_in(s, &p);
			else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
				s->cut = true;
		}
	s->cut |= size < 0;
}

static struct process *
find_parent(const struct sweep *s, const struct process *p)
{
	return (struct process *)process_find(&s->all, p->parent);
}

/* Settles it and those above it by the first one that is settled; nobody twice. */
static void
climb(const struct sweep *s, struct process *p)
{
	enum mark mark = MARK_FOREIGN;
	struct process *q = p;

	for (; q && q->mark == MARK_OPEN; q = find_parent(s, q))
		q->mark = MARK_CLIMBED;
	if (q && q->mark == MARK_OURS)
		mark = MARK_OURS;
	for (q = p; q && q->mark == MARK_CLIMBED; q = find_parent(s, q))
		q->mark = mark;
}

/*
 * Descendants mostly have greater numbers than who they descend from, and those of others, that
 * have been there before, come later.  Settles those whose parents came later in the list.
 */
void
sweep_all(struct sweep *s)
{
	pid_t first = s->root ? s->root : s->outsider ? s->outsider : 1;

	s->sorted = true;
	read_processes(s, first, INT_MAX);
	if (first > 1)
		read_processes(s, 1, first);
	s->cut |= s->all.n == 0;
	if (!s->sorted)
		process_sort(&s->all);
	for (size_t i = 0; i < s->all.n; i++)
		if (s->all.at[i].mark == MARK_OPEN)
			climb(s, &s->all.at[i]);
	for (size_t i = 0; i < s->all.n; i++)
		if (s->all.at[i].mark == MARK_OURS && !s->all.at[i].met)
			meet(s, &s->all.at[i]);
}

/* ---- what stays known ---- */

/* Is the group of the one outside its own? */
static bool
has_whole_group(const struct sweep *s)
{
	pid_t group = s->aim.outsider->group;
	bool any = false;

	for (size_t i = 0; group && i < s->all.n; i++) {
		const struct process *p = &s->all.at[i];

		if (p->group != group || process_is_dead(p))
			continue;
		if (p->mark != MARK_OURS)
			return false;
		any = true;
	}
	return any && !s->cut;
}

/* When all of it have ended, others may get its number. */
static bool
has_group(const struct sweep *s)
{
	for (size_t i = 0; i < s->all.n; i++)
		if (s->all.at[i].group == s->aim.outsider->group)
			return true;
	return s->cut;
}

void
sweep_keep(struct processes *kept, const struct sweep *s)
{
	struct processes ours = {0};
	bool fits = true;

	for (size_t i = 0; i < s->all.n; i++)
		if (s->all.at[i].mark == MARK_OURS)
			fits = fits && process_add(&ours, &s->all.at[i]);
	for (size_t i = 0; s->cut && i < kept->n; i++)
		if (!process_find(&s->all, kept->at[i].pid))
			fits = fits && process_add(&ours, &kept->at[i]);
	if (!fits) {
		free(ours.at);
		return;
	}
	if (s->cut && ours.n > 0)
		process_sort(&ours);
	free(kept->at);
	*kept = ours;
}

/* ---- all of it ---- */

/*
 * The look has not found these: /proc hides them, or they were born since.  Most kernels list
 * children in one go.
 */
static size_t
signal_children(const struct sweep *s)
{
	char text[4096], *rest, *word;
	size_t n = 0;

	if (process_self() != getpid() ||
	    !process_read_file("/proc/thread-self/children", text, sizeof text))
		return 0;
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		struct process p = {.pid = atoi(word)};
		const struct process *found = process_find(&s->all, p.pid);

		(void)process_look_up(&p);
		if ((found && found->mark == MARK_OURS) ||
		    process_is_among(s->aim.spared, &p) || !process_lives(p.pid))
			continue; /* or the last number was cut */
		n++;
		if (p.pid != s->aim.command)
			aim_send(p.pid, &s->aim);
	}
	return n;
}

/* Nothing is needed for the command but its number, and for what is outside its descriptor. */
static void
signal_first(struct sweep *s)
{
	const struct aim *a = &s->aim;

	if (a->command && a->leads)
		aim_send(-a->command, a);
	if (a->command && (!a->leads || getpgid(a->command) != a->command))
		aim_send(a->command, a);
	if (!a->outsider || outsider_has_ended(a->outsider))
		return;
	s->alive++; /* also if we may not signal it: then it goes on */
	if (!s->spares_outsider && !aim_send_by(a->outsider->fd, a) &&
	    a->outsider->by_proc)
		aim_send(a->outsider->pid, a);
}

/* The outside process gets it before those below it: it must not go on as if they had ended. */
void
sweep(struct sweep *s, pid_t root)
{
	struct outsider *o = s->aim.outsider;
	instant began = instant_now();

	signal_first(s);
	s->root = root ? process_number(root) : 0;
	s->command = s->aim.command ? process_number(s->aim.command) : 0;
	s->had = s->aim.but ? process_number(s->aim.but) : 0;
	s->known = sweep_known(o);
	if (o)
		look_for_outsider(s);
	sweep_all(s);
	if (root == getpid())
		s->hidden = signal_children(s);
	s->alive += s->hidden + s->cut; /* it cannot be seen that all is quiet */
	if (o) {
		if (!has_group(s))
			o->group = 0;
		o->whole = has_whole_group(s);
		o->quiet = s->alive ? 0 : o->quiet + 1;
	}
	sweep_keep(s->known, s);
	free(s->all.at);
	process_reserve(); /* what has died may have left room */
	took = instant_now() - began;
}
