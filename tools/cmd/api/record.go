package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A record is the file that has the API of one package: its budget, and a line for each item.
type record struct {
	path   string
	budget int
	lines  []string
}

// recordPath returns the path of the record of a package, below dir.
func recordPath(dir, importPath string) string {
	name := strings.TrimPrefix(importPath, modulePath+"/")
	return filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".txt")
}

const modulePath = "github.com/reprise-go/reprise"

// readRecord reads a record. A file that does not exist is an empty one without a budget.
func readRecord(path string) (record, error) {
	r := record{path: path, budget: -1}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	} else if err != nil {
		return r, err
	}
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	if _, err := fmt.Sscanf(string(first), budgetLine, &r.budget); err != nil {
		return r, fmt.Errorf("%s: the first line is %q, want the budget: %q", path, first, fmt.Sprintf(budgetLine, 100))
	}
	for line := range strings.Lines(string(rest)) {
		r.lines = append(r.lines, strings.TrimSuffix(line, "\n"))
	}
	return r, nil
}

const budgetLine = "at most %d items"

func (r record) write() error {
	text := fmt.Sprintf(budgetLine+"\n", r.budget) + strings.Join(r.lines, "\n") + "\n"
	return os.WriteFile(r.path, []byte(text), 0o644)
}

// compare returns what differs from the API of today.
func (r record) compare(now items) []string {
	var mistakes []string
	if now.all > r.budget && r.budget >= 0 {
		mistakes = append(mistakes, fmt.Sprintf("%s: %d items are more than the budget of %d; make it smaller, or raise the budget in its first line and give the reason in the commit", r.path, now.all, r.budget))
	}
	for _, line := range r.lines {
		if _, ok := slices.BinarySearch(now.lines, line); !ok {
			mistakes = append(mistakes, fmt.Sprintf("%s: it is gone, or changed: %s", r.path, line))
		}
	}
	for _, line := range now.lines {
		if !slices.Contains(r.lines, line) {
			mistakes = append(mistakes, fmt.Sprintf("%s: it is new, or changed: %s", r.path, line))
		}
	}
	return mistakes
}

// check compares the records below dir with the packages of today, and rewrites them if write is set. A budget is never
// changed, only given to a new package.
func check(dir string, packages []goPackage, write bool) ([]string, error) {
	var mistakes []string
	known := map[string]bool{}
	for _, p := range packages {
		now, err := p.count()
		if err != nil {
			return nil, err
		}
		if now.all == 0 {
			continue
		}
		r, err := readRecord(recordPath(dir, p.ImportPath))
		if err != nil {
			return nil, err
		}
		known[r.path] = true
		if write {
			if r.lines = now.lines; r.budget < 0 {
				r.budget = now.all
			}
			if err := r.write(); err != nil {
				return nil, err
			}
		}
		mistakes = append(mistakes, r.compare(now)...)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		switch {
		case known[path]:
		case write:
			if err := os.Remove(path); err != nil {
				return nil, err
			}
		default:
			mistakes = append(mistakes, path+": there is no such package any more")
		}
	}
	return mistakes, nil
}
