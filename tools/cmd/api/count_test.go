package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCountItems(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		all    int
	}{
		"constants and variables": {"const A, b = 1, 2\nvar C, D int\nvar e int", 3},
		"functions":               {"func A() {}\nfunc b() {}", 1},
		"methods":                 {"type A int\nfunc (A) B() {}\nfunc (*A) C() {}\nfunc (A) d() {}\ntype e int\nfunc (e) F() {}", 3},
		"generic methods":         {"type A[T any] int\nfunc (A[T]) B() {}\ntype C[K, V any] int\nfunc (*C[K, V]) D() {}", 4},
		"fields":                  {"type A struct {\n\tB, C int\n\td int\n\tE\n}\ntype E = int", 4},
		"interfaces":              {"type A interface {\n\tB()\n\tc()\n}\ntype d interface{ E() }", 2},
		"a comment is none":       {"// A is not there.", 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "p.go")
			if err := os.WriteFile(path, []byte("package p\n\n"+test.source+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := countItems([]string{path})
			if err != nil {
				t.Fatal(err)
			}
			if got.all != test.all {
				t.Errorf("%d items, want %d", got.all, test.all)
			}
		})
	}
}

func TestFieldsOf(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte("package p\n\ntype Config struct{ A, B int }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	packages := []goPackage{{Dir: dir, ImportPath: "example.com/p", Name: "p", GoFiles: []string{"p.go"}}}
	if n, err := fieldsOf(packages, "p.Config"); n != 2 || err != nil {
		t.Errorf("%d fields, %v", n, err)
	}
	if _, err := fieldsOf(packages, "p.Missing"); err == nil {
		t.Error("a type that does not exist has fields")
	}
}

func TestIsPublic(t *testing.T) {
	for path, want := range map[string]bool{"m/core": true, "m/core/internal/x": false, "m/internal": false, "m/examples/hello": false, "m/bench": false, "m/docs/snippets/a": false} {
		if got := (goPackage{ImportPath: path, Name: "p", GoFiles: []string{"p.go"}}).isPublic(); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if (goPackage{ImportPath: "m/x", Name: "main", GoFiles: []string{"p.go"}}).isPublic() {
		t.Error("a program is public")
	}
}
