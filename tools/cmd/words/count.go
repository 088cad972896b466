package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// turns are those that are counted, in the order in which they are written.
var turns = []string{
	"what", "whoever", "whatever", "nobody", "under way", "meanwhile", "so many", "so long", "comes again", "mend", "of its own", "is over",
	"is of no use", "affair", "by and by",
}

// patterns are how the turns are found: as whole words, in any case.
var patterns = func() map[string]*regexp.Regexp {
	all := map[string]*regexp.Regexp{}
	for _, turn := range turns {
		words := strings.ReplaceAll(turn, " ", `\s+`)
		if turn == "mend" {
			words = "mend(s|ed|ing)?"
		}
		all[turn] = regexp.MustCompile(`(?i)\b` + words + `\b`)
	}
	return all
}()

// amounts has the counts of each turn: in comments, and in documentation.
type amounts map[string][2]int

const inComments, inDocs = 0, 1

// exempt are files that name the turns, or tell what was.
var exempt = []string{"docs/contributing/glossary.md", "CHANGELOG.md"}

// count counts the turns in the files.
func count(files fs.FS, names []string) (amounts, error) {
	found := amounts{}
	for _, name := range names {
		kind := inDocs
		switch {
		case slices.Contains(exempt, name), strings.HasSuffix(name, "_test.go"), strings.HasPrefix(name, "tools/cmd/words/"):
			continue
		case path.Ext(name) == ".go":
			kind = inComments
		}
		text, err := fs.ReadFile(files, name)
		if errors.Is(err, fs.ErrNotExist) { // deleted, and not yet committed
			continue
		}
		if err != nil {
			return nil, err
		}
		prose := string(text)
		if kind == inComments {
			prose = comments(prose)
		}
		for turn, pattern := range patterns {
			both := found[turn]
			both[kind] += len(pattern.FindAllString(prose, -1))
			found[turn] = both
		}
	}
	return found, nil
}

// comments returns the comments of a Go file. What stands behind two slashes in a string is no comment, but few strings have
// such a text.
func comments(source string) string {
	var all strings.Builder
	for line := range strings.SplitSeq(source, "\n") {
		if _, comment, ok := strings.Cut(line, "//"); ok {
			all.WriteString(comment)
			all.WriteByte('\n')
		}
	}
	return all.String()
}

// compare returns a line for each turn of which there is more than the limit.
func compare(limits, found amounts) (problems []string) {
	for _, turn := range turns {
		for kind, where := range []string{"comments", "documentation"} {
			if is, most := found[turn][kind], limits[turn][kind]; is > most {
				problems = append(problems, fmt.Sprintf("%q is %d times in %s, and was %d times", turn, is, where, most))
			}
		}
	}
	return problems
}

// lower returns the lower one of each two numbers.
func lower(a, b amounts) amounts {
	both := amounts{}
	for _, turn := range turns {
		both[turn] = [2]int{min(a[turn][0], b[turn][0]), min(a[turn][1], b[turn][1])}
	}
	return both
}

const header = "# turn of speech, times in comments of Go, times in Markdown: make check counts them, tools/cmd/words -w lowers them.\n"

func format(a amounts) string {
	var all strings.Builder
	all.WriteString(header)
	for _, turn := range turns {
		fmt.Fprintf(&all, "%s: %d %d\n", turn, a[turn][inComments], a[turn][inDocs])
	}
	return all.String()
}

func parse(text string) (amounts, error) {
	all := amounts{}
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		turn, numbers, _ := strings.Cut(line, ":")
		fields := strings.Fields(numbers)
		if !slices.Contains(turns, turn) || len(fields) != 2 {
			return nil, fmt.Errorf("line %d is %q; write a turn of tools/cmd/words, a colon and two numbers", n+1, line)
		}
		var both [2]int
		for kind := range both {
			var err error
			if both[kind], err = strconv.Atoi(fields[kind]); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
		}
		all[turn] = both
	}
	return all, nil
}
