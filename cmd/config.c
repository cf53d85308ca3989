/* config.c - dlock config: every setting that counts, and where it comes from. */
#include "cmd.h"

#include "conf.h"
#include "json.h"
#include "mask.h"
#include "parse.h"
#include "say.h"
#include "text.h"
#include "variables.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = URL_BYTES * 4 };

/*
 * Prints a row such as "ttl 30s /etc/dlock.conf:3 [key "deploy"]"; it may end with "--ttl" or
 * "default" instead.  `value` NULL: there is none.  `origin` is "flag", "variable", "file",
 * "enclosing" or "default".  `from` is the option, the variable or the file, or NULL.  `in` is
 * the entry that stands in a file, or NULL.
 */
static void
print_row(const struct params *p, const char *name, const char *value, const char *origin,
    const char *from, const struct said *in)
{
	static char text[2 * SHOWN_BYTES];
	const char *section = in && *in->origin->section ? in->origin->section : NULL;
	struct json o;

	if (p->look.json) {
		json_begin(&o, text, sizeof text);
		json_put_number(&o, "v", 1);
		json_put_string(&o, "name", name);
		json_put_string(&o, "value", value);
		json_put_string(&o, "origin", origin);
		json_put_string(&o, "from", from);
		if (in)
			json_put_number(&o, "line", in->line);
		json_put_string(&o, "section", section);
		json_end(&o);
		puts(text);
		return;
	}
	text_clean(text, SHOWN_BYTES, value ? value : "-", strlen(value ? value : "-"));
	printf("%-18s %-30s %s", name, text, from ? from : origin);
	if (in)
		printf(":%d", in->line);
	if (section)
		printf(" [%s]", text_shown(section).text);
	putchar('\n');
}

/* Prints a value and its origin.  `s` NULL: it is the default. */
static void
print_value(
    const struct params *p, const char *name, const char *value, const struct said *s)
{
	if (!s)
		print_row(p, name, value, "default", NULL, NULL);
	else if (said_in_file(s))
		print_row(p, name, value, "file", s->origin->file, s);
	else
		print_row(p, name, value,
		    s->origin->by == BY_WORDS       ? "flag"
			: s->origin->by == BY_OUTER ? "enclosing"
						    : "variable",
		    said_call(s, s->option).text, NULL);
}

/* Prints option i as it was said; a flag as yes or no. */
static void
print_option(const struct params *p, int i)
{
	const struct said *s = said_of(p->said, i);
	const char *value;
	char text[64];
	bool on;

	if (i == OPT_WAIT && !s && p->wait.most == 0) {
		s = said_of(p->said, OPT_NONBLOCK);
		value = "0";
	} else if (i == OPT_BACKEND && p->site.backend) {
		value = p->site.backend->name;
		if (!s) /* its name comes from the URL's scheme */
			s = said_of(p->said, OPT_URL);
	} else if (!s) {
		value = options_default(p, i, text, sizeof text);
	} else {
		value = s->value;
		if (!options[i].arg && parse_truth(value, &on))
			value = on ? "yes" : "no";
	}
	print_value(p, options[i].name, i == OPT_BACKEND && !s ? NULL : value, s);
}

static void
print_url(const struct params *p)
{
	const struct said *s = said_of(p->said, OPT_URL);
	char masked[URL_BYTES] = "", *user;
	const char *value = p->site.url ? masked : NULL;
	size_t n;

	if (p->site.url)
		snprintf(masked, sizeof masked, "%s", p->site.url);
	mask_passwords(masked);
	user = (char *)params_lone_user(p, masked, &n);
	if (user)
		memset(user, 'x', n);
	if (p->site.inherits)
		print_row(p, "url", value, "enclosing", "DLOCK_KEEPER", NULL);
	else if (p->site.of_variable)
		print_row(p, "url", value, "variable",
		    variables_url(p->site.backend).text, NULL);
	else
		print_value(p, "url", value, s);
}

/* Prints each setting on a row of its own. */
static void
print_settings(const struct params *p)
{
	for (size_t i = 0; i < p->site.nsettings; i++) {
		char text[SETTINGS_BYTES];

		snprintf(text, sizeof text, "%s=%s", p->site.settings[i].name,
		    p->site.settings[i].value);
		mask_passwords(text);
		print_value(p, "option", text, p->said->settings[i]);
	}
}

/* Each on a row of its own; the values of one origin stand together. */
static void
print_switches(const struct params *p)
{
	const struct said *first = said_of(p->said, OPT_UNLESS_FROZEN);

	if (!first)
		print_option(p, OPT_UNLESS_FROZEN);
	for (const struct said *s = first; s && s->origin == first->origin; s = s->next)
		if (s->option == OPT_UNLESS_FROZEN)
			print_value(
			    p, options[s->option].name, *s->value ? s->value : NULL, s);
}

static int
run_config(struct params *p)
{
	size_t n;
	const struct conf_file *files = conf_files(&n);

	for (const struct conf_file *f = files; f < files + n; f++)
		print_row(p, "file", f->shown, f->there ? "read" : "absent", NULL, NULL);
	for (size_t i = 0; i < p->nkeys; i++)
		print_value(p, "key", p->keys[i], said_of(p->said, OPT_KEY));
	if (said_of(p->said, OPT_PROFILE))
		print_option(p, OPT_PROFILE);
	for (int i = 0; i < OPTIONS; i++)
		if (i == OPT_URL)
			print_url(p);
		else if (i == OPT_OPTION)
			print_settings(p);
		else if (i == OPT_UNLESS_FROZEN)
			print_switches(p);
		else if (conf_allows(i))
			print_option(p, i);
	return say_written();
}

const struct cmd cmd_config = {.help = "show every setting and where it comes from",
    .bit = CMD_CONFIG,
    .usage =
	"usage: dlock config [-k KEY] [-J] [options of dlock run]\n"
	"\n"
	"Shows which settings a run of KEY would have, and where each comes from: an option, a\n"
	"variable, a line of a configuration file, or the default.  Passwords are masked.\n"
	"Without KEY, sections for keys do not count.\n"
	"\n"
	"  dlock config -k deploy/web\n"
	"  dlock config --profile ci -J | jq -r 'select(.name == \"url\").value'\n",
    .notes =
	"Files: $XDG_CONFIG_HOME/dlock.conf (else ~/.config/dlock.conf), then /etc/dlock.conf;\n"
	"or only the one that --config or DLOCK_CONFIG names.  See man dlock.conf.",
    .run = run_config};
