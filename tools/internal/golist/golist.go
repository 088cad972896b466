// Package golist asks the go command about the packages of the workspace.
package golist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Packages returns all packages of the workspace. P has some of the fields that go list -json prints, and fields lists
// their names, such as "ImportPath,Name".
func Packages[P any](fields string) ([]P, error) {
	var packages []P
	err := JSON(func(d *json.Decoder) error {
		for {
			var p P
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			packages = append(packages, p)
		}
	}, "list", "-json="+fields, "work")
	return packages, err
}

// JSON runs the go command and passes its output to decode.
func JSON(decode func(*json.Decoder) error, args ...string) error {
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
