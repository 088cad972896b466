package main

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestCheck(t *testing.T) {
	files := fstest.MapFS{
		"README.md": {Data: []byte("# Title\n\n[a](docs/a.md) [b](docs/a.md#when-it-fails-and-why) [up](#title) [site](https://example.com/x#y) [dir](docs)\n" +
			"`[code](nowhere.md)`\n\n```sh\n[block](nowhere.md)\n# no heading\n```\n")},
		"docs/a.md":     {Data: []byte("## When it fails, and why\n\n## Twice\n\n## Twice\n\n[up](../README.md#title) [second](#twice-1) [with parentheses](b_(c).md)\n")},
		"docs/b_(c).md": {Data: []byte("")},
		"bad.md":        {Data: []byte("[file](docs/c.md)\n[heading](docs/a.md#why)\n[block](README.md#no-heading)\n[root](/docs/a.md)\n[text](go.mod#x)\n")},
		"go.mod":        {Data: []byte("")},
	}
	if broken := check(files, []string{"README.md", "docs/a.md"}); len(broken) > 0 {
		t.Errorf("of good links some are broken: %q", broken)
	}
	broken := check(files, []string{"bad.md"})
	for n, says := range []string{"no such file", "no such heading", "no such heading", "from the root", "only a Markdown file"} {
		if !slices.ContainsFunc(broken, func(line string) bool {
			return strings.HasPrefix(line, "bad.md:"+string(rune('1'+n))+": ") && strings.Contains(line, says)
		}) {
			t.Errorf("line %d is not said to have %q: %q", n+1, says, broken)
		}
	}
}
