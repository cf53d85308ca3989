/* config.c - dlock config: every setting that counts, and where it comes from. */
#include "cmd.h"

#include "conf.h"
#include "mask.h"
#include "object.h"
#include "parse.h"
#include "say.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = URL_BYTES * 4 };

/* One row of what is told. */
struct row {
	const char *name;
	const char *value;   /* NULL: there is none */
	const char *origin;  /* "flag", "variable", "file", "enclosing", "default" */
	const char *from;    /* the option, the variable or the file; NULL */
	int line;            /* of the file; 0 */
	const char *section; /* NULL: none */
};

/* "/etc/dlock.conf:3 [key "deploy"]", "--ttl", "default" */
static const char *
write_origin(const struct row *r, char *out, size_t size)
{
	char section[200] = "";

	if (!r->line)
		return r->from ? r->from : r->origin;
	if (r->section)
		text_clean(section, sizeof section, r->section, strlen(r->section));
	snprintf(out, size, "%s:%d%s%s%s", r->from, r->line, *section ? " [" : "",
	    section, *section ? "]" : "");
	return out;
}

static void
print_text(const struct row *r)
{
	static char value[SHOWN_BYTES];
	char origin[FILE_SHOWN_BYTES + 240];

	text_clean(value, sizeof value, r->value ? r->value : "-",
	    r->value ? strlen(r->value) : 1);
	printf(
	    "%-18s %-30s %s\n", r->name, value, write_origin(r, origin, sizeof origin));
}

static void
print_json(const struct row *r)
{
	static char text[2 * SHOWN_BYTES];
	struct object o;

	object_begin(&o, text, sizeof text);
	object_number(&o, "v", 1);
	object_string(&o, "name", r->name);
	object_string(&o, "value", r->value);
	object_string(&o, "origin", r->origin);
	object_string(&o, "from", r->from);
	if (r->line)
		object_number(&o, "line", r->line);
	object_string(&o, "section", r->section && *r->section ? r->section : NULL);
	object_end(&o);
	puts(text);
}

/* Of option i, as its source calls it. */
static void
print_row(const struct plan *p, const char *name, const struct source *s, int i, int line,
    const char *value)
{
	struct row r = {.name = name, .value = value, .origin = "default"};
	char called[CALLED_BYTES];

	if (s && sources_filed(s))
		r = (struct row){r.name, value, "file", s->file, line, s->section};
	else if (s) {
		r.origin = s->kind == SOURCE_WORDS ? "flag"
		    : s->kind == SOURCE_ENCLOSING  ? "enclosing"
						   : "variable";
		r.from = sources_call(s, i, called, sizeof called);
	}
	(p->look.json ? print_json : print_text)(&r);
}

/* As it was said; a flag as yes or no. */
static const char *
value_said(const struct source *s, int i)
{
	bool on;

	if (options[i].arg || !parse_truth(s->value[i], &on))
		return s->value[i];
	return on ? "yes" : "no";
}

static void
print_option(const struct plan *p, const struct sources *all, int i)
{
	const struct source *s = sources_of(all, i);
	char text[64];

	if (i == OPT_WAIT && !s && p->wait.most == 0) {
		s = sources_of(all, OPT_NONBLOCK);
		print_row(p, "wait", s, OPT_NONBLOCK, s->line[OPT_NONBLOCK], "0");
		return;
	}
	print_row(p, options[i].name, s, i, s ? s->line[i] : 0,
	    s ? value_said(s, i) : options_default(p, i, text, sizeof text));
}

static void
print_url(const struct plan *p, const struct sources *all)
{
	const struct source *s = sources_of(all, OPT_URL);
	char masked[URL_BYTES] = "", name[URL_VARIABLE_BYTES] = "";
	struct row r = {"url", p->site.url ? masked : NULL, "default", NULL, 0, NULL};
	const char *variable;

	if (p->site.backend)
		sources_url_variable(p->site.backend, name);
	variable = *name ? plan_variable(name) : NULL;
	if (p->site.url)
		snprintf(masked, sizeof masked, "%s", p->site.url);
	mask_passwords(masked);
	if (p->site.inherits || (p->site.url && p->site.url == variable)) {
		r.origin = p->site.inherits ? "enclosing" : "variable";
		r.from = p->site.inherits ? "DLOCK_KEEPER" : name;
		(p->look.json ? print_json : print_text)(&r);
	} else
		print_row(p, "url", s, OPT_URL, s ? s->line[OPT_URL] : 0, r.value);
}

/* Its name may come from the URL's scheme. */
static void
print_backend(const struct plan *p, const struct sources *all)
{
	const struct source *s = sources_of(all, OPT_BACKEND);
	int i = OPT_BACKEND;

	if (!s && p->site.backend) {
		s = sources_of(all, OPT_URL);
		i = OPT_URL;
	}
	if (s)
		print_row(p, "backend", s, i, s->line[i], p->site.backend->name);
	else
		print_row(p, "backend", NULL, i, 0, NULL);
}

/* Each on a row of its own. */
static void
print_settings(const struct plan *p, const struct sources *all)
{
	for (size_t i = 0; i < p->site.nsettings; i++) {
		char text[SETTINGS_BYTES];

		snprintf(text, sizeof text, "%s=%s", p->site.settings[i].name,
		    p->site.settings[i].value);
		mask_passwords(text);
		print_row(p, "option", all->setters[i].by, OPT_OPTION,
		    all->setters[i].line, text);
	}
}

static void
print_files(const struct plan *p, const struct sources *all)
{
	for (size_t i = 0; i < all->nfiles; i++) {
		const struct source_file *file = &all->files[i];
		const struct row r = {.name = "file",
		    .value = file->shown,
		    .origin = file->there ? "read" : "absent"};

		(p->look.json ? print_json : print_text)(&r);
	}
}

static void
print_keys(const struct plan *p, const struct sources *all)
{
	for (size_t i = 0; i < p->nkeys; i++) {
		const struct source *s = sources_of(all, OPT_KEY);

		print_row(p, "key", s ? s : all->list, OPT_KEY, 0, p->keys[i]);
	}
}

static int
run_config(struct plan *p)
{
	const struct sources *all = p->sources;

	print_files(p, all);
	print_keys(p, all);
	if (sources_of(all, OPT_PROFILE))
		print_option(p, all, OPT_PROFILE);
	for (int i = 0; i < OPTIONS; i++)
		if (i == OPT_BACKEND)
			print_backend(p, all);
		else if (i == OPT_URL)
			print_url(p, all);
		else if (i == OPT_OPTION)
			print_settings(p, all);
		else if (conf_allows(i))
			print_option(p, all, i);
	return say_written();
}

const struct cmd cmd_config = {.name = "config",
    .help = "tell every setting and where it comes from",
    .bit = CMD_CONFIG,
    .usage =
	"usage: dlock config [-k KEY] [-J] [options of dlock run]\n"
	"\n"
	"Tells which settings a run of KEY would have, and where each comes from: an option, a\n"
	"variable, a line of a configuration file, or the default.  Passwords are masked.\n"
	"Without KEY, sections for keys do not count.\n"
	"\n"
	"  dlock config -k deploy/web\n"
	"  dlock config --profile ci -J | jq -r 'select(.name == \"url\").value'\n",
    .notes =
	"Files: $XDG_CONFIG_HOME/dlock.conf (else ~/.config/dlock.conf), then /etc/dlock.conf;\n"
	"or only the one that --config or DLOCK_CONFIG names.  See man dlock.conf.",
    .run = run_config};
