package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)?)\)`)
	code    = regexp.MustCompile("`[^`]*`")
	heading = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	target  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// check returns a line for each broken link.
func check(files fs.FS, names []string) (broken []string) {
	c := checker{files: files, anchors: map[string]map[string]bool{}}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			broken = append(broken, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		for n, line := range prose(string(text)) {
			for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
				if problem := c.problem(name, found[1]); problem != "" {
					broken = append(broken, fmt.Sprintf("%s:%d: %s: %s", name, n+1, found[1], problem))
				}
			}
		}
	}
	return broken
}

// prose returns the lines of a Markdown file, with those of blocks of code empty.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	fence := ""
	for n, line := range lines {
		trimmed := strings.TrimLeft(line, " >")
		mark := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		switch {
		case fence == "" && len(mark) >= 3:
			fence, lines[n] = mark, ""
		case fence != "":
			if lines[n] = ""; mark == fence {
				fence = ""
			}
		}
	}
	return lines
}

type checker struct {
	files   fs.FS
	anchors map[string]map[string]bool // by file
}

// problem returns the reason for which a link of a file is broken, or "".
func (c *checker) problem(from, to string) string {
	u, err := url.Parse(to)
	switch {
	case err != nil:
		return "it is no URL"
	case u.Scheme != "" || u.Host != "":
		return ""
	}
	file := from
	if u.Path != "" {
		if file = path.Join(path.Dir(from), u.Path); strings.HasPrefix(u.Path, "/") {
			return "a path from the root is another place on each site; use a relative one"
		}
	}
	info, err := fs.Stat(c.files, file)
	switch {
	case err != nil:
		return "there is no such file"
	case u.Fragment == "":
		return ""
	case info.IsDir() || path.Ext(file) != ".md":
		return "only a Markdown file has headings"
	case !c.anchorsOf(file)[u.Fragment]:
		return fmt.Sprintf("%s has no such heading", file)
	}
	return ""
}

// anchorsOf returns the anchors of a file's headings, as GitHub makes them.
func (c *checker) anchorsOf(file string) map[string]bool {
	if c.anchors[file] == nil {
		anchors := map[string]bool{}
		text, err := fs.ReadFile(c.files, file)
		if err != nil {
			return anchors
		}
		for _, line := range prose(string(text)) {
			if found := heading.FindStringSubmatch(line); found != nil {
				name := anchorOf(found[1])
				for i, first := 1, name; anchors[name]; i++ {
					name = fmt.Sprintf("%s-%d", first, i)
				}
				anchors[name] = true
			}
		}
		c.anchors[file] = anchors
	}
	return c.anchors[file]
}

func anchorOf(title string) string {
	title = target.ReplaceAllString(title, "$1")
	var name strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			name.WriteRune(r)
		case r == ' ':
			name.WriteByte('-')
		}
	}
	return name.String()
}
