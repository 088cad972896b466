// Imports checks the imports in the workspace, so that a user of one adapter never downloads another one's
// client, and an adapter uses only packages that a third-party adapter could use. Run it at the top of the
// repository.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/reprise-go/reprise/tools/internal/golist"
)

func main() {
	wrong, err := check()
	if err != nil {
		fmt.Fprintln(os.Stderr, "imports:", err)
		os.Exit(1)
	}
	for _, w := range wrong {
		fmt.Println(w)
	}
	if len(wrong) > 0 {
		os.Exit(1)
	}
}

func check() (wrong []string, err error) {
	var mod struct{ Require []struct{ Path string } }
	if err := golist.JSON(func(d *json.Decoder) error { return d.Decode(&mod) }, "mod", "edit", "-json"); err != nil {
		return nil, err
	}
	for _, r := range mod.Require {
		wrong = append(wrong, fmt.Sprintf("go.mod requires %s: the root module needs nothing but the standard library", r.Path))
	}

	packages, err := golist.Packages[struct {
		ImportPath                         string
		Imports, TestImports, XTestImports []string
		Module                             struct{ Path, GoMod string }
	}]("ImportPath,Imports,TestImports,XTestImports,Module")
	if err != nil {
		return nil, err
	}
	files, imports := map[string]string{}, map[string][]string{} // by module
	for _, p := range packages {
		wrong = append(wrong, violations(p.ImportPath, p.Imports, false)...)
		wrong = append(wrong, violations(p.ImportPath, append(p.TestImports, p.XTestImports...), true)...)
		files[p.Module.Path] = p.Module.GoMod
		if !isTestServer(p.ImportPath) {
			imports[p.Module.Path] = append(imports[p.Module.Path], p.Imports...)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if !hasUsers(path) {
			continue
		}
		requires, err := directly(files[path])
		if err != nil {
			return nil, err
		}
		for _, r := range unimported(requires, imports[path]) {
			wrong = append(wrong, fmt.Sprintf("go.mod of %s requires %s, which no package needs, but tests do: users of the module get it; to fix: move those tests to %s%s", path, r, path, testModule))
		}
	}
	return wrong, nil
}

// directly returns the modules that a go.mod requires, without those that are marked as indirect.
func directly(file string) (requires []string, err error) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := golist.JSON(func(d *json.Decoder) error { return d.Decode(&mod) }, "mod", "edit", "-json", file); err != nil {
		return nil, err
	}
	for _, r := range mod.Require {
		if !r.Indirect {
			requires = append(requires, r.Path)
		}
	}
	return requires, nil
}
