// Snippets keeps the Go code in the documentation true. Run it at the top of the repository: it reads every *.md file
// below and knows two kinds of fenced block.
//
// A block after a marker is a copy of code that is compiled and tested elsewhere:
//
//	<!-- snippet: docs/snippets/retry_test.go#policy -->
//
// The block must equal the region of that file between the lines "// snippet: policy" and "// end" ("# snippet: policy" and
// "# end" in Python), the named declarations ("file.go#Open,Transport.Close"), or the whole file if the marker names neither. With -w the block is
// rewritten instead.
//
// A go block without a marker must be a whole file that starts with its package clause. It is compiled in the
// document's directory, as a separate package, and may import every package of the workspace.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	write := flag.Bool("w", false, "rewrite the blocks that differ from their source")
	flag.Parse()
	problems, err := run(".", *write)
	if err != nil {
		fmt.Fprintln(os.Stderr, "snippets:", err)
		os.Exit(1)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// run checks every document below root and returns the problems.
func run(root string, write bool) (problems []string, err error) {
	var files []file
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		found, whole, err := checkDocument(root, path, write)
		problems = append(problems, found...)
		files = append(files, whole...)
		return err
	})
	if err != nil {
		return nil, err
	}
	uncompiled, err := compile(root, files)
	return append(problems, uncompiled...), err
}

// checkDocument compares the marked blocks of the document at path with their sources, or rewrites them, and returns
// the blocks to compile.
func checkDocument(root, path string, write bool) (problems []string, whole []file, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	report := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: %s", path, line, fmt.Sprintf(format, args...)))
	}
	lines := strings.SplitAfter(string(content), "\n")
	doc := parse(lines)
	for _, line := range doc.stray {
		report(line, "no fenced block follows this marker")
	}
	var rewritten []string
	kept := 0 // lines[:kept] are in rewritten
	for _, b := range doc.blocks {
		switch {
		case b.marker != "":
			want, err := source(root, b.marker)
			if err != nil {
				report(b.line, "%v", err)
				continue
			}
			if b.text == want {
				continue
			}
			if !write {
				report(b.line, "differs from %s: make docs copies it from there", b.marker)
				continue
			}
			rewritten = append(rewritten, lines[kept:b.first]...)
			rewritten = append(rewritten, indent(want, b.indent))
			kept = b.end
		case b.language != "go":
		case !startsWithPackage(b.text):
			report(b.line, "needs a snippet marker, or a package clause so that it can be compiled")
		default:
			whole = append(whole, file{document: path, line: b.first + 1, text: b.text})
		}
	}
	if kept > 0 {
		text := strings.Join(append(rewritten, lines[kept:]...), "")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, nil, err
		}
	}
	return problems, whole, nil
}
