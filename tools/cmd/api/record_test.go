package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	source := t.TempDir()
	api := t.TempDir()
	packages := []goPackage{{Dir: source, ImportPath: modulePath + "/a/b", Name: "b", GoFiles: []string{"p.go"}}}
	code := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(source, "p.go"), []byte("package b\n\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(write bool, texts ...string) {
		t.Helper()
		mistakes, err := check(api, packages, write)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(mistakes, "\n")
		if len(mistakes) != len(texts) {
			t.Errorf("differences:\n%s\nwant %q", all, texts)
		}
		for _, text := range texts {
			if !strings.Contains(all, text) {
				t.Errorf("differences:\n%s\nwant %q among them", all, text)
			}
		}
	}
	code("const A = \"x\"\n\nfunc B[T any](a T, b ...int) error { return nil }\n\ntype C struct {\n\tD int\n\tE\n\tf int\n}\n\ntype E interface{ G(n int) error }\n\nfunc (*C) H() {}\n")
	want(false, "new, or changed: const A = \"x\"", "func B[T any](a T, b ...int) error", "type C struct", "type C struct, D int", "type C struct, embeds E", "type E interface", "type E interface, G (n int) error", "method (*C) H()")
	want(true)
	want(false)
	code("const A = \"y\"\n")
	packages[0].ImportPath += "c"
	want(false, "a-b.txt: there is no such package any more", "a-bc.txt: it is new, or changed: const A = \"y\"")
	want(true)
	code("const A = \"y\"\n\nconst I = 1\n")
	want(true, "2 items are more than the budget of 1")
	code("var I int\n")
	want(false, "gone, or changed: const A = \"y\"", "gone, or changed: const I = 1", "new, or changed: var I int")
}
