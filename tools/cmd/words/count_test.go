package main

import (
	"maps"
	"slices"
	"testing"
	"testing/fstest"
)

func TestCount(t *testing.T) {
	files := fstest.MapFS{
		"a.go":                          {Data: []byte("// What nobody\n// so  many mends, amend\nvar nobody = 1 // under way\nvar s = \"// meanwhile\"\n")},
		"a_test.go":                     {Data: []byte("// nobody\nvar s = `what\nis over`\n")},
		"a.md":                          {Data: []byte("Nobody, whatever.\n\nSo\nmany\n")},
		"docs/contributing/glossary.md": {Data: []byte("nobody\n")},
	}
	found, err := count(files, append(slices.Collect(maps.Keys(files)), "deleted.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := amounts{
		"what": {1, 0, 1, 0}, "nobody": {1, 1, 0, 1}, "so many": {1, 0, 0, 1}, "mend": {1, 0, 0, 0}, "under way": {1, 0, 0, 0}, "whatever": {0, 0, 0, 1},
		"meanwhile": {0, 0, 1, 0}, "is over": {0, 0, 1, 0},
	}
	for _, turn := range turns {
		if found[turn] != want[turn] {
			t.Errorf("%q was found %v times, want %v", turn, found[turn], want[turn])
		}
	}
	if p := compare(want, found); len(p) > 0 {
		t.Errorf("within the limits there are problems: %q", p)
	}
	want["nobody"] = [kinds]int{0, 1, 0, 1}
	if p := compare(want, found); len(p) != 1 {
		t.Errorf("beyond one limit the problems are %q", p)
	}
	if got := lower(want, found)["nobody"]; got != [kinds]int{0, 1, 0, 1} {
		t.Errorf("lower keeps %v", got)
	}
}

func TestParse(t *testing.T) {
	all := amounts{}
	for n, turn := range turns {
		all[turn] = [kinds]int{n, 2 * n, 3 * n, 4 * n}
	}
	read, err := parse(format(all))
	if err != nil || !maps.Equal(read, all) {
		t.Errorf("parse(format) = %v, %v", read, err)
	}
	for _, wrong := range []string{"nothing: 1 2 3 4", "nobody: 1 2", "nobody: 1 2 3 x"} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%q is no error", wrong)
		}
	}
}
