// Imports checks the imports in the workspace, so that a user of one adapter never downloads another one's
// client, and an adapter uses only packages that a third-party adapter could use. Run it at the top of the
// repository.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	if err := goJSON(func(d *json.Decoder) error { return d.Decode(&mod) }, "mod", "edit", "-json"); err != nil {
		return nil, err
	}
	for _, r := range mod.Require {
		wrong = append(wrong, fmt.Sprintf("go.mod requires %s: the root module needs nothing but the standard library", r.Path))
	}

	err = goJSON(func(d *json.Decoder) error {
		for {
			var p struct {
				ImportPath                         string
				Imports, TestImports, XTestImports []string
			}
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			wrong = append(wrong, violations(p.ImportPath, p.Imports, false)...)
			wrong = append(wrong, violations(p.ImportPath, append(p.TestImports, p.XTestImports...), true)...)
		}
	}, "list", "-json=ImportPath,Imports,TestImports,XTestImports", "work")
	return wrong, err
}

// goJSON runs the go command and passes its output to decode.
func goJSON(decode func(*json.Decoder) error, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w", args[0], err)
	}
	if err := decode(json.NewDecoder(bytes.NewReader(out))); err != nil {
		return fmt.Errorf("go %s: decode its output: %w", args[0], err)
	}
	return nil
}
