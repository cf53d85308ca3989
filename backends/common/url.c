/* url.c - cuts a URL into its parts. */
#include "url.h"

#include "encode.h"

#include <string.h>

/* Cuts off user:password@, if there is an @.  Returns the text behind it. */
static const char *
cut_login(struct url *u, const char *text, size_t n)
{
	const char *at = memrchr(text, '@', n), *colon;

	if (!at)
		return text;
	colon = memchr(text, ':', at - text);
	u->user = (struct url_part){text, (colon ? colon : at) - text};
	if (colon)
		u->password = (struct url_part){colon + 1, at - colon - 1};
	return at + 1;
}

/* Does what strcspn(3) does without its table, which costs a page fault. */
static size_t
before_any(const char *text, const char *marks)
{
	size_t n = 0;

	while (text[n] && !strchr(marks, text[n]))
		n++;
	return n;
}

const char *
url_cut(struct url *u, const char *text)
{
	size_t scheme = before_any(text, ":/?#"), authority;
	const char *rest = text + scheme, *hosts;

	*u = (struct url){.scheme = {text, scheme}};
	if (strncmp(rest, "://", 3) != 0) {
		u->path = strncmp(rest, ":/", 2) == 0
		    ? (struct url_part){rest + 1, before_any(rest + 1, "?#")}
		    : (struct url_part){NULL, 0};
		return "has no // after its scheme";
	}
	rest += 3;
	authority = before_any(rest, "/?#"); /* a / in a password is written as %2F */
	hosts = cut_login(u, rest, authority);
	rest += authority;
	u->hosts = (struct url_part){hosts, rest - hosts};
	u->path = (struct url_part){rest, *rest == '/' ? before_any(rest, "?#") : 0};
	rest += u->path.n;
	if (*rest == '?')
		u->query = (struct url_part){rest + 1, strcspn(rest + 1, "#")};
	if (url_hides_login(u) || strchr(rest, '@'))
		return URL_HIDES_LOGIN;
	if (*rest == '#' || (u->query.at && u->query.at[u->query.n] == '#'))
		return "has a '#' in it (%23)";
	return NULL;
}

bool
url_hides_login(const struct url *u)
{
	return u->path.n > 0 && memchr(u->path.at, '@', u->path.n);
}

bool
url_part_is(const struct url_part *p, const char *word)
{
	return p->at && strlen(word) == p->n && memcmp(p->at, word, p->n) == 0;
}

struct url_part
url_part_first(struct url_part *list)
{
	const char *comma = memchr(list->at, ',', list->n);
	struct url_part first = {list->at, comma ? (size_t)(comma - list->at) : list->n};

	*list = comma ? (struct url_part){comma + 1, list->n - first.n - 1}
		      : (struct url_part){NULL, 0};
	return first;
}

const char *
url_login(const struct url *u, char *user, size_t user_size, char *password,
    size_t password_size)
{
	return encode_undo(user, user_size, u->user.at, u->user.n) < 0 ||
		encode_undo(password, password_size, u->password.at, u->password.n) < 0
	    ? URL_WRONG_LOGIN
	    : NULL;
}
