// Api keeps the exported API of each public package of the workspace in a file below api/, one line for each item: a
// constant, variable, function, type, method, exported field or interface method. It fails if a file differs from the code, or
// if a package has more items than its budget, which is the file's first line. Run it at the top of the repository.
//
//	api             compares
//	api -w          rewrites the files, and prints how many items each package has
//	api core.Config prints how many fields a type has
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/tools/internal/golist"
)

func main() {
	write := flag.Bool("w", false, "rewrite the files below api/")
	flag.Parse()
	if err := run(*write, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func run(write bool, types []string) error {
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
	mistakes, err := check("api", packages, write)
	if err != nil {
		return err
	}
	for _, m := range mistakes {
		fmt.Fprintln(os.Stderr, m)
	}
	if len(mistakes) > 0 {
		return fmt.Errorf("%d differences; make api rewrites the files", len(mistakes))
	}
	if write {
		return printCounts(packages)
	}
	return nil
}

// printCounts prints how many items each package has.
func printCounts(packages []goPackage) error {
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
