package main

import (
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"strings"
)

// source returns the code that a marker names: "dir/file.go#region", "dir/file.go#Name,Type.Method" for declarations, or
// "dir/file.go" for all of it.
func source(root, marker string) (string, error) {
	name, region, _ := strings.Cut(marker, "#")
	path := filepath.Join(root, filepath.FromSlash(name))
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("%s is outside the repository", name)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the source of a snippet: %w", err)
	}
	if filepath.Ext(name) == ".go" && !compiled(root, name) {
		return "", fmt.Errorf("%s is never compiled: no source for a snippet", name)
	}
	if region == "" {
		return string(content), nil
	}
	code, found, err := cut(string(content), name, region)
	if found || err != nil {
		return code, err
	}
	return declarations(content, name, strings.Split(region, ","))
}

// compiled reports whether go build or go test reads the file at all.
func compiled(root, name string) bool {
	for element := range strings.SplitSeq(filepath.ToSlash(name), "/") {
		if element == "testdata" || strings.HasPrefix(element, "_") || strings.HasPrefix(element, ".") {
			return false
		}
	}
	dir, base := filepath.Split(name)
	match, err := build.Default.MatchFile(filepath.Join(root, dir), base)
	return err == nil && match
}

// cut returns the region of content without its common indentation and without blank lines around it, and whether there
// is one.
func cut(content, name, region string) (code string, found bool, err error) {
	var lines []string
	inside := false
	for line := range strings.Lines(content) {
		switch comment := commentOf(line); {
		case comment == "snippet: "+region && !inside:
			if found {
				return "", true, fmt.Errorf("%s has two regions named %s", name, region)
			}
			inside, found = true, true
		case comment == "end" && inside:
			inside = false
		case inside:
			lines = append(lines, line)
		}
	}
	if inside {
		return "", true, fmt.Errorf("%s: region %s has no end", name, region)
	}
	return dedent(trim(lines)), found, nil
}

// commentOf returns the text of a line that is only a comment, of Go or of another language, or "".
func commentOf(line string) string {
	line = strings.TrimSpace(line)
	for _, begin := range []string{"// ", "# "} {
		if text, ok := strings.CutPrefix(line, begin); ok {
			return text
		}
	}
	return ""
}

// trim leaves out blank lines at both ends: gofmt puts one before an "// end" between declarations.
func trim(lines []string) []string {
	blank := func(line string) bool { return strings.TrimSpace(line) == "" }
	for len(lines) > 0 && blank(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// dedent joins the lines without the tabs that all of them start with.
func dedent(lines []string) string {
	common := -1
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		tabs := len(line) - len(strings.TrimLeft(line, "\t"))
		if common < 0 || tabs < common {
			common = tabs
		}
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(line[min(max(common, 0), len(line)-len(strings.TrimLeft(line, "\t"))):])
	}
	return b.String()
}
