// Api prints how many exported items each public package of the workspace has, so that growth is seen: constants, variables,
// functions, types, methods, and the exported fields and interface methods of exported types. Run it at the top of the
// repository. With names of types, such as core.Config, it prints the number of their fields instead.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/tools/internal/golist"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(types []string) error {
	packages, err := publicPackages()
	if err != nil {
		return err
	}
	for _, name := range types {
		fields, err := fieldsOf(packages, name)
		if err != nil {
			return err
		}
		fmt.Printf("%6d fields %s\n", fields, name)
	}
	if len(types) > 0 {
		return nil
	}
	total := 0
	for _, p := range packages {
		items, err := p.count()
		if err != nil {
			return err
		}
		total += items.all
		fmt.Printf("%6d %s\n", items.all, p.ImportPath)
	}
	fmt.Printf("%6d in all\n", total)
	return nil
}

// fieldsOf returns the number of exported fields of a type, which is named as pkg.Type.
func fieldsOf(packages []goPackage, name string) (int, error) {
	inPackage, typeName, _ := strings.Cut(name, ".")
	for _, p := range packages {
		if p.Name != inPackage {
			continue
		}
		items, err := p.count()
		if err != nil {
			return 0, err
		}
		if n, ok := items.fields[typeName]; ok {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no public package has a type %s; write it as core.Config", name)
}

// goPackage is a package as go list describes it.
type goPackage struct {
	Dir, ImportPath, Name string
	GoFiles               []string
}

func (p goPackage) count() (items, error) {
	files := make([]string, len(p.GoFiles))
	for i, name := range p.GoFiles {
		files[i] = filepath.Join(p.Dir, name)
	}
	return countItems(files)
}

// publicPackages returns those that users can import.
func publicPackages() ([]goPackage, error) {
	packages, err := golist.Packages[goPackage]("Dir,ImportPath,Name,GoFiles")
	return slices.DeleteFunc(packages, func(p goPackage) bool { return !p.isPublic() }), err
}

// isPublic reports whether users import the package: not a program, and none that is internal or only shows the use of others.
func (p goPackage) isPublic() bool {
	if p.Name == "main" || len(p.GoFiles) == 0 {
		return false
	}
	for part := range strings.SplitSeq(p.ImportPath, "/") {
		switch part {
		case "internal", "examples", "bench", "soak", "snippets":
			return false
		}
	}
	return true
}
