package core_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declaredFunctions returns the names of the functions that a file declares; methods are
// Type.name.
func declaredFunctions(t *testing.T, file string) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			receiver := f.Recv.List[0].Type
			if star, ok := receiver.(*ast.StarExpr); ok {
				receiver = star.X
			}
			if generic, ok := receiver.(*ast.IndexListExpr); ok {
				receiver = generic.X
			}
			name = fmt.Sprint(receiver) + "." + name
		}
		names[name] = true
	}
	return names
}

// The page about the way of a failed message names each function once, in its file.
func TestArchitecture_NamesTheWayOfAFailedMessage(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, way, _ := strings.Cut(string(text), "\n## The way of a message that fails\n")
	way, _, _ = strings.Cut(way, "\n## ")
	links := regexp.MustCompile("\\[`([A-Za-z.]+)`\\]\\((core/[a-z_/]+\\.go)\\)").FindAllStringSubmatch(way, -1)
	if len(links) < 15 {
		t.Fatalf("the page has %d functions", len(links))
	}
	named := map[string]bool{}
	for _, link := range links {
		name, file := link[1], link[2]
		if named[name] {
			t.Errorf("%s is named twice", name)
		}
		named[name] = true
		if !declaredFunctions(t, filepath.Join("..", file))[name] {
			t.Errorf("%s does not declare %s", file, name)
		}
	}
}
