/* config.c - dlock config: every setting that counts, and where it comes from. */
#include "cmd.h"

#include "object.h"
#include "parse.h"
#include "say.h"
#include "sources.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = URL_BYTES * 4 };

/*
 * As "ttl 30s /etc/dlock.conf:3 [key "deploy"]"; "--ttl" or "default" may stand last.  Value
 * NULL: there is none.  Origin: "flag", "variable", "file", "enclosing" or "default"; from: the
 * option, the variable or the file, or NULL.  `in`: the section of a file (NULL: what is no
 * file), which says it in that line.
 */
static void
print_row(const struct plan *p, const char *name, const char *value, const char *origin,
    const char *from, const struct source *in, int line)
{
	static char text[2 * SHOWN_BYTES];
	const char *section = in && *in->section ? in->section : NULL;
	struct object o;

	if (p->look.json) {
		object_begin(&o, text, sizeof text);
		object_number(&o, "v", 1);
		object_string(&o, "name", name);
		object_string(&o, "value", value);
		object_string(&o, "origin", origin);
		object_string(&o, "from", from);
		if (in)
			object_number(&o, "line", line);
		object_string(&o, "section", section);
		object_end(&o);
		puts(text);
		return;
	}
	text_clean(text, SHOWN_BYTES, value ? value : "-", strlen(value ? value : "-"));
	printf("%-18s %-30s %s", name, text, from ? from : origin);
	if (in)
		printf(":%d", line);
	if (section)
		printf(" [%s]", text_shown(section).text);
	putchar('\n');
}

/* A value of option i, from its source (NULL: the default) and that line, if that is a file. */
static void
print_value(const struct plan *p, const char *name, const char *value,
    const struct source *s, int i, int line)
{
	if (!s)
		print_row(p, name, value, "default", NULL, NULL, 0);
	else if (sources_filed(s))
		print_row(p, name, value, "file", s->file, s, line);
	else
		print_row(p, name, value,
		    s->kind == SOURCE_WORDS           ? "flag"
			: s->kind == SOURCE_ENCLOSING ? "enclosing"
						      : "variable",
		    sources_call(s, i).text, NULL, 0);
}

/* As it was said; a flag as yes or no. */
static void
print_option(const struct plan *p, int i)
{
	const struct source *s = sources_of(p->sources, i);
	const char *name = options[i].name, *value;
	char text[64];
	bool on;

	if (i == OPT_WAIT && !s && p->wait.most == 0) {
		i = OPT_NONBLOCK;
		s = sources_of(p->sources, i);
		value = "0";
	} else if (i == OPT_BACKEND && p->site.backend) {
		value = p->site.backend->name;
		if (!s) { /* its name comes from the URL's scheme */
			i = OPT_URL;
			s = sources_of(p->sources, i);
		}
	} else if (!s) {
		value = options_default(p, i, text, sizeof text);
	} else {
		value = s->value[i];
		if (!options[i].arg && parse_truth(value, &on))
			value = on ? "yes" : "no";
	}
	print_value(
	    p, name, i == OPT_BACKEND && !s ? NULL : value, s, i, s ? s->line[i] : 0);
}

static void
print_url(const struct plan *p)
{
	const struct source *s = sources_of(p->sources, OPT_URL);
	char masked[URL_BYTES] = "", *user;
	const char *value = p->site.url ? masked : NULL;
	size_t n;

	if (p->site.url)
		snprintf(masked, sizeof masked, "%s", p->site.url);
	mask_passwords(masked);
	user = (char *)plan_lone_user(p, masked, &n);
	if (user)
		memset(user, 'x', n);
	if (p->site.inherits)
		print_row(p, "url", value, "enclosing", "DLOCK_KEEPER", NULL, 0);
	else if (p->site.of_variable)
		print_row(p, "url", value, "variable",
		    sources_url_variable(p->site.backend).text, NULL, 0);
	else
		print_value(p, "url", value, s, OPT_URL, s ? s->line[OPT_URL] : 0);
}

/* Each on a row of its own. */
static void
print_settings(const struct plan *p)
{
	for (size_t i = 0; i < p->site.nsettings; i++) {
		const struct setter *by = &p->sources->setters[i];
		char text[SETTINGS_BYTES];

		snprintf(text, sizeof text, "%s=%s", p->site.settings[i].name,
		    p->site.settings[i].value);
		mask_passwords(text);
		print_value(p, "option", text, by->by, OPT_OPTION, by->line);
	}
}

static int
run_config(struct plan *p)
{
	const struct sources *all = p->sources;

	for (const struct source_file *f = all->files; f < all->files + all->nfiles; f++)
		print_row(
		    p, "file", f->shown, f->there ? "read" : "absent", NULL, NULL, 0);
	for (size_t i = 0; i < p->nkeys; i++)
		print_value(p, "key", p->keys[i], sources_of(all, OPT_KEY), OPT_KEY, 0);
	if (sources_of(all, OPT_PROFILE))
		print_option(p, OPT_PROFILE);
	for (int i = 0; i < OPTIONS; i++)
		if (i == OPT_URL)
			print_url(p);
		else if (i == OPT_OPTION)
			print_settings(p);
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
