//go:build darwin || linux

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// document is the users' guide of this program.
const document = "../docs/reliability.md"

func readDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDocument_HasEveryPromiseAndFault(t *testing.T) {
	text := readDocument(t)
	for _, g := range []guarantees{{nativeCount: true, ordered: true}, {mode: subjects[0].mode}} {
		for _, f := range newLedger().verdict(g) {
			if row := "| " + f.promise.text + " | " + f.promise.rules + " |"; !strings.Contains(text, row) {
				t.Errorf("%s lacks %q", document, row)
			}
		}
	}
	for _, s := range []system{&inMemory{}, &postgresSystem{}, &rabbitSystem{}, &sqsSystem{}, &asbSystem{}} {
		for _, f := range s.faults() {
			if !strings.Contains(text, "| "+f.name+" |") {
				t.Errorf("%s has no result of the fault %q", document, f.name)
			}
		}
	}
	for _, s := range subjects {
		if !strings.Contains(text, s.title) || !strings.Contains(text, "`"+s.name+"`") {
			t.Errorf("%s has no result of %s (%s)", document, s.name, s.title)
		}
	}
}

var testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")

func TestDocument_NamesTestsThatExist(t *testing.T) {
	var source strings.Builder
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		source.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := testName.FindAllStringSubmatch(readDocument(t), -1)
	if len(names) == 0 {
		t.Fatalf("%s names no test", document)
	}
	for _, name := range names {
		if !strings.Contains(source.String(), "\nfunc "+name[1]+"(") {
			t.Errorf("%s names the test %s, which does not exist", document, name[1])
		}
	}
}
