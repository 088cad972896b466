// Imports checks the imports in the workspace, so that a user of one adapter never downloads another one's
// client, and an adapter uses only packages that a third-party adapter could use. Run it at the top of the
// repository.
package main

import (
	"encoding/json"
	"fmt"
	"os"

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
	}]("ImportPath,Imports,TestImports,XTestImports")
	for _, p := range packages {
		wrong = append(wrong, violations(p.ImportPath, p.Imports, false)...)
		wrong = append(wrong, violations(p.ImportPath, append(p.TestImports, p.XTestImports...), true)...)
	}
	return wrong, err
}
