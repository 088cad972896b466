package main

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
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

// kind is a kind of text.
type kind int

const (
	inComments     kind = iota // of Go, except tests
	inTestComments             // of Go's tests
	inStrings                  // of Go, tests included: error texts, log lines, titles of test cases
	inDocs                     // Markdown
	kinds
)

var kindNames = [kinds]string{"comments", "comments of tests", "strings of Go", "documentation"}

// amounts has the counts of each turn.
type amounts map[string][kinds]int

// exempt are files that name the turns, or tell what was.
var exempt = []string{"docs/contributing/glossary.md", "CHANGELOG.md"}

// count counts the turns in the files.
func count(files fs.FS, names []string) (amounts, error) {
	found := amounts{}
	for _, name := range names {
		if slices.Contains(exempt, name) || strings.HasPrefix(name, "tools/cmd/words/") {
			continue
		}
		text, err := read(files, name)
		if err != nil {
			return nil, err
		}
		var prose [kinds]string
		if path.Ext(name) == ".go" {
			own := inComments
			if strings.HasSuffix(name, "_test.go") {
				own = inTestComments
			}
			prose[own], prose[inStrings] = proseOf(text)
		} else {
			prose[inDocs] = string(text)
		}
		for turn, pattern := range patterns {
			all := found[turn]
			for k, p := range prose {
				all[k] += len(pattern.FindAllString(p, -1))
			}
			found[turn] = all
		}
	}
	return found, nil
}

// read returns the text of a file, which is empty if the file is deleted and not yet committed.
func read(files fs.FS, name string) ([]byte, error) {
	text, err := fs.ReadFile(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// proseOf returns the comments and the strings of a Go file.
func proseOf(source []byte) (comments, literals string) {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", set.Base(), len(source)), source, nil, scanner.ScanComments)
	var c, l strings.Builder
	for {
		switch _, tok, text := s.Scan(); tok {
		case token.EOF:
			return c.String(), l.String()
		case token.COMMENT:
			c.WriteString(strings.TrimPrefix(text, "//") + "\n")
		case token.STRING:
			l.WriteString(text + "\n")
		}
	}
}

// compare returns a line for each turn of which there is more than the limit.
func compare(limits, found amounts) (problems []string) {
	for _, turn := range turns {
		for kind, where := range kindNames {
			if is, limit := found[turn][kind], limits[turn][kind]; is > limit {
				problems = append(problems, fmt.Sprintf("%q is %d times in %s, and was %d times", turn, is, where, limit))
			}
		}
	}
	return problems
}

// lower returns the lower one of each two numbers.
func lower(a, b amounts) amounts {
	both := amounts{}
	for _, turn := range turns {
		n := a[turn]
		for k := range n {
			n[k] = min(n[k], b[turn][k])
		}
		both[turn] = n
	}
	return both
}

const header = "# turn of speech, times in comments of Go, in comments of tests, in strings of Go, in Markdown: make check counts them, tools/cmd/words -w lowers them.\n"

func format(a amounts) string {
	var all strings.Builder
	all.WriteString(header)
	for _, turn := range turns {
		n := a[turn]
		fmt.Fprintf(&all, "%s: %d %d %d %d\n", turn, n[inComments], n[inTestComments], n[inStrings], n[inDocs])
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
		if !slices.Contains(turns, turn) || len(fields) != int(kinds) {
			return nil, fmt.Errorf("line %d is %q; write a turn of tools/cmd/words, a colon and %d numbers", n+1, line, kinds)
		}
		var counts [kinds]int
		for kind := range counts {
			var err error
			if counts[kind], err = strconv.Atoi(fields[kind]); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
		}
		all[turn] = counts
	}
	return all, nil
}
