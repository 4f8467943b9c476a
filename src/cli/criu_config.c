/*
 * Configuration files: one option a line, without its dashes, then its argument, in double quotes if
 * it has blanks; "\"" is a double quote in it, and '#' begins a comment.
 */
#include "cli/criu.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/*
 * Takes the next word off a line, in place. NULL at the end or a comment. A quote that is not closed
 * sets `*wrong`.
 */
static char *next_word(char **line, bool *wrong)
{
	char *from = *line, *word, *to;

	while (isspace((unsigned char)*from))
		from++;
	if (!*from || *from == '#')
		return NULL;
	word = to = from;
	if (*from != '"') {
		while (*to && !isspace((unsigned char)*to) && *to != '#')
			to++;
		*line = *to && *to != '#' ? to + 1 : to;
		if (*to == '#')
			**line = '\0';
		*to = '\0';
		return word;
	}
	for (from++; *from && *from != '"'; *to++ = *from++)
		if (from[0] == '\\' && from[1] == '"')
			from++;
	*wrong = *from != '"';
	*line = *from ? from + 1 : from;
	*to = '\0';
	return word;
}

static bool read_line(struct sp_criu *criu, char *line, unsigned number, struct sp_array *words)
{
	bool wrong = false;
	char *name = next_word(&line, &wrong);
	char *argument = name ? next_word(&line, &wrong) : NULL;
	char *rest = argument && !wrong ? next_word(&line, &wrong) : NULL, *word;

	if (wrong)
		return sp_criu_usage(criu, "line %u: a double quote is not closed", number);
	if (rest)
		return sp_criu_usage(criu, "line %u: \"%s\" is one argument too many", number,
		                     rest);
	if (!name)
		return true;
	word = argument ? sp_format("--%s=%s", name, argument) : sp_format("--%s", name);
	sp_array_append(&criu->words, &word);
	sp_array_append(words, &word);
	return true;
}

bool sp_criu_read_config(struct sp_criu *criu, const char *path, bool optional,
                         struct sp_array *words)
{
	sp_cleanup_file FILE *file = fopen(path, "re");
	sp_cleanup_free char *line = NULL;
	size_t size = 0;
	unsigned number = 0;
	bool fine = true;

	if (!file)
		return (optional && errno == ENOENT) ||
		       sp_criu_usage(criu, "cannot read it: %s", strerror(errno));
	while (fine && getline(&line, &size, file) >= 0)
		fine = read_line(criu, line, ++number, words);
	return fine;
}
