package main

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestCheckNames(t *testing.T) {
	files := fstest.MapFS{
		"a.go": {Data: []byte("package a\n\n// again\nvar mostBytes = \"until\"\n\nfunc lockedUntil(until int) { _ = until; mostly(Of) }\n")},
		"a.md": {Data: []byte("most\n")},
	}
	found, err := checkNames(files, []string{"a.go", "a.md", "deleted.go"})
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range found {
		found[i], _, _ = strings.Cut(line, " says")
	}
	if want := []string{"a.go:4:5: the name mostBytes", "a.go:6:18: the name until"}; !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
	}
}
